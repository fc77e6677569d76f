"""TAB completion in bash, where ``KEY=VALUE`` is three words; click has the rest.

Importing this module puts it in the place of click's own class for bash.
"""

from __future__ import annotations

from click.shell_completion import BashComplete, CompletionItem, add_completion_class

# After what ends with a sign of equality no blank follows: its value does.
_PLAIN = """elif [[ $type == 'plain' ]]; then
"""
_NO_BLANK = (
    _PLAIN
    + """            [[ $value == *= ]] && compopt -o nospace
"""
)


@add_completion_class
class Bash(BashComplete):
    """Bash parts words at ``=`` and completes the last part alone."""

    name = "bash"
    source_template = BashComplete.source_template.replace(_PLAIN, _NO_BLANK)
    _before = ""  # what stands before the part that bash completes

    def get_completion_args(self) -> tuple[list[str], str]:
        """The words before the one to be completed, and its beginning; parts joined again."""
        args, incomplete = super().get_completion_args()
        words: list[str] = []
        for part in (*args, incomplete):
            if words and (part == "=" or words[-1].endswith("=")):
                words[-1] += part
            else:
                words.append(part)
        *args, whole = words
        self._before = whole.removesuffix(incomplete) if incomplete != "=" else whole
        return args, whole

    def format_completion(self, item: CompletionItem) -> str:
        """A word as bash takes it: without what stands already."""
        return f"{item.type},{item.value.removeprefix(self._before)}"
