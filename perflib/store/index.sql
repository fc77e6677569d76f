-- What run files say of themselves, a row each (index.py puts the words in braces in).
-- What stands in a file is taken where it has the right shape, and is NULL where it has not. The
-- last condition: no column of lists next to one of numbers; the table itself has children.
WITH raw AS (
    SELECT file_name, first(value) FILTER (key = 'perflib') AS record,
        first(value) FILTER (key = '{findings}') AS findings,
        first(value) FILTER (key = '{levels}') AS levels
    FROM parquet_kv_metadata({files}) GROUP BY file_name
), stored AS (
    SELECT file_name, try(decode(record)) AS record, try(decode(findings)) AS findings,
        try(decode(levels)) AS levels
    FROM raw
), valid AS (
    SELECT file_name, parse_filename(file_name) AS name,
        CASE WHEN json_valid(record) THEN record END AS record,
        CASE WHEN json_valid(coalesce(reported.findings, stored.findings))
            THEN coalesce(reported.findings, stored.findings) END AS findings,
        CASE WHEN json_valid(coalesce(reported.levels, stored.levels))
            THEN coalesce(reported.levels, stored.levels) END AS levels
    FROM stored LEFT JOIN reported ON reported.name = parse_filename(file_name)
), parsed AS (
    SELECT *, json_extract_string(record, [{text_list}]) AS texts,
        from_json(json_extract(findings, '$.findings'), '[{"claim": "VARCHAR",
            "subject": "VARCHAR", "kind": "VARCHAR", "verdict": "VARCHAR", "effect": "DOUBLE",
            "low": "DOUBLE", "high": "DOUBLE", "unit": "VARCHAR", "threshold": "DOUBLE",
            "confidence": "DOUBLE", "plain": "VARCHAR", "reason": "VARCHAR",
            "about": "JSON"}]') AS found
    FROM valid WHERE json_type(record, '$.provenance') = 'OBJECT'
)
SELECT name, size, mtime_ns, name[:-9] AS run, num_rows AS samples, {text_columns},
    json_extract(record, '$.params') AS params,
    json_extract(record, '$.provenance') AS provenance,
    CASE WHEN found IS NOT NULL THEN json_extract_string(findings, '$.perflib') END AS analysed,
    list_transform(
        list_filter(found, lambda one: one.claim IS NOT NULL AND one.kind IS NOT NULL
            AND one.verdict IN ('supported', 'refuted', 'inconclusive')),
        lambda one: struct_pack(
            claim := coalesce(json_extract_string(one.about, '$.claim'), one.claim),
            subject := one.subject, kind := one.kind, verdict := one.verdict,
            effect := one.effect, low := one.low, high := one.high, unit := one.unit,
            threshold := one.threshold, confidence := one.confidence, plain := one.plain,
            exact := one.claim, reason := one.reason, about := one.about)) AS findings,
    list_filter(from_json(json_extract(levels, '$.levels'), '[{"setting": "VARCHAR",
        "unit": "VARCHAR", "cpu": ["BIGINT"], "value": ["DOUBLE"]}]'),
        lambda one: one.setting IS NOT NULL) AS levels
FROM parsed JOIN parquet_file_metadata({files}) USING (file_name)
    JOIN here USING (name)
WHERE texts[1] IS NOT NULL AND file_name NOT IN (
    SELECT file_name FROM parquet_schema({files}) GROUP BY file_name
    HAVING count(num_children) > 1)
