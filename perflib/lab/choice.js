// A table whose rows are chosen by a click, Enter or the space bar; arrows go up and down.

function make(tag, name, parent, text = "") {
  const element = document.createElement(tag);
  element.className = name;
  element.textContent = text;
  parent.append(element);
  return element;
}

function render({ model, el }) {
  const root = make("div", "perflib-choice", el);
  root.dataset.lmSuppressShortcuts = "true"; // keys here are no shortcuts of JupyterLab's
  const table = make("table", "perflib-choice-table", root);

  function choose(place) {
    const chosen = model.get("chosen");
    const others = model.get("many") ? chosen.filter((other) => other !== place) : [];
    model.set("chosen", chosen.includes(place) ? others : [...others, place]);
    model.save_changes();
  }

  function load() {
    const { caption, columns = [], rows = [], prose = [] } = model.get("data");
    table.replaceChildren();
    make("caption", "", table, caption);
    const kind = (i) => (prose.includes(i) ? "prose" : "number");
    const head = make("tr", "", make("thead", "", table));
    columns.forEach((name, i) => (make("th", kind(i), head, name).scope = "col"));
    const body = make("tbody", "", table);
    rows.forEach((words, place) => {
      const row = make("tr", "perflib-choice-row", body);
      row.tabIndex = 0;
      row.addEventListener("click", () => choose(place));
      row.addEventListener("keydown", (event) => {
        const to = { ArrowDown: row.nextElementSibling, ArrowUp: row.previousElementSibling };
        if (event.key in to) to[event.key]?.focus();
        else if (event.key === "Enter" || event.key === " ") choose(place);
        else return;
        event.preventDefault();
        event.stopPropagation();
      });
      words.forEach((word, i) => make("td", kind(i), row, word));
    });
    mark();
  }

  function mark() {
    const chosen = model.get("chosen");
    for (const [place, row] of table.querySelectorAll("tbody tr").entries()) {
      row.setAttribute("aria-selected", chosen.includes(place));
    }
  }

  model.on("change:data", load);
  model.on("change:chosen", mark);
  load();
  return () => {
    model.off("change:data", load);
    model.off("change:chosen", mark);
  };
}

export default { render };
