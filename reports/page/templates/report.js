"use strict";
// Tables from the embedded data: sorted, filtered, a page of rows at a time. Texts are numbers into `strings`.
(() => {
  const { strings, tables } = JSON.parse(document.getElementById("data").textContent);
  const lower = strings.map((text) => text.toLowerCase());
  const order = new Intl.Collator("en", { numeric: true });
  const PAGE = 50;

  const element = (tag, properties, ...children) => {
    const node = Object.assign(document.createElement(tag), properties);
    node.append(...children);
    return node;
  };
  const tone = (text) => ("✓▼".includes(text[0]) ? " good" : "✗!".includes(text[0]) ? " bad" : "?≈".includes(text[0]) ? " doubt" : "");

  /* The strings that hold a word, as a mask: 40,000 rows share few of them. */
  const holding = (word) => Uint8Array.from(lower, (text) => (text.includes(word) ? 1 : 0));

  /* Long names may be broken after what separates their words. */
  const parts = (kind, text) =>
    kind === "name" || kind === "kernel" || kind === "prose"
      ? text.split(/(?<=[_/.])/).flatMap((part, at) => (at ? [element("wbr"), part] : [part]))
      : [text];

  function show(section) {
    const { columns, cells, details } = tables[section.dataset.table];
    const count = cells[0].length;
    const texts = columns.map((column, at) => at).filter((at) => columns[at].kind !== "number");
    let rows = Array.from({ length: count }, (_, row) => row);
    let sorted = rows;
    let page = 0;
    const chosen = new Map();

    const search = element("input", { type: "search", placeholder: "words, all of which must occur" });
    const status = element("span", { className: "note" });
    status.setAttribute("role", "status");
    const back = element("button", { type: "button", textContent: "‹ Previous" });
    const next = element("button", { type: "button", textContent: "Next ›" });
    const tools = element("div", { className: "tools" }, element("label", {}, "Filter", search));
    const shown = []; // the columns that tell rows apart; what all rows share is shown once
    const shared = [];
    columns.forEach((column, at) => {
      const counts = new Map();
      for (const cell of cells[at]) counts.set(cell, (counts.get(cell) || 0) + 1);
      const [only] = counts.keys();
      const empty = column.kind === "number" ? only === null : strings[only] === "";
      if (counts.size === 1 && empty) return;
      if (counts.size === 1 && count > 1 && column.kind === "choice") return shared.push(`${column.name} ${strings[only]}`);
      shown.push(at);
      if (counts.size < 2 || (column.kind !== "status" && column.kind !== "choice")) return;
      const select = element("select", {}, element("option", { value: "", textContent: "all" }));
      const choices = [...counts];
      if (column.kind === "choice") choices.sort((a, b) => order.compare(strings[a[0]], strings[b[0]]));
      for (const [cell, number] of choices)
        select.append(element("option", { value: cell, textContent: `${strings[cell] || "none"} (${number})` }));
      select.addEventListener("change", () => {
        if (select.value === "") chosen.delete(at);
        else chosen.set(at, Number(select.value));
        filter();
      });
      tools.append(element("label", {}, column.name, select));
    });
    if (count > PAGE) tools.append(back, next);
    tools.append(status);

    const heads = shown.map((at) => {
      const column = columns[at];
      const head = element("th", { scope: "col", className: column.kind });
      head.append(element("button", { type: "button", textContent: column.name, onclick: () => sort(at, head) }));
      return head;
    });
    const body = element("tbody");
    const caption = `${section.dataset.title}: table, scrolls sideways`;
    const wide = element("div", { className: "wide", tabIndex: 0 },
      element("table", {}, element("thead", {}, element("tr", {}, ...heads)), body));
    wide.setAttribute("role", "region");
    wide.setAttribute("aria-label", caption);
    section.append(tools, wide);
    // of what is half in sight, a browser shows no more when it gets the focus
    wide.addEventListener("focusin", (event) => event.target.scrollIntoView({ block: "nearest", inline: "nearest" }));

    search.addEventListener("input", filter);
    back.addEventListener("click", () => turn(-1));
    next.addEventListener("click", () => turn(1));

    function sort(at, head) {
      const down = head.getAttribute("aria-sort") === "ascending";
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const column = cells[at];
      const sign = down ? -1 : 1;
      let compare = (a, b) => (column[a] - column[b]) * sign;
      if (columns[at].kind !== "number") {
        // rows come with the worst status first, and that is the order of statuses
        const used = [...new Set(column)];
        if (columns[at].kind !== "status") used.sort((a, b) => order.compare(strings[a], strings[b]));
        const rank = new Map(used.map((text, at) => [text, at]));
        const ranks = column.map((text) => rank.get(text));
        compare = (a, b) => (ranks[a] - ranks[b]) * sign;
      } else {
        // what was not measured comes last either way
        compare = (a, b) => (column[a] === null) - (column[b] === null) || (column[a] - column[b]) * sign;
      }
      sorted = Array.from({ length: count }, (_, row) => row).sort(compare);
      filter();
    }

    function filter() {
      const masks = search.value.toLowerCase().split(/\s+/).filter(Boolean).map(holding);
      const picks = [...chosen];
      rows = sorted.filter((row) =>
        picks.every(([at, text]) => cells[at][row] === text) &&
        masks.every((mask) => texts.some((at) => mask[cells[at][row]])));
      page = 0;
      draw();
    }

    function turn(step) {
      page += step;
      draw();
    }

    function draw() {
      const first = page * PAGE;
      body.replaceChildren(...rows.slice(first, first + PAGE).map(line));
      back.disabled = page === 0;
      next.disabled = first + PAGE >= rows.length;
      const last = Math.min(first + PAGE, rows.length);
      const range = rows.length ? `${first + 1} to ${last} of ${rows.length}${rows.length < count ? `, ${count} in all` : ""}`
        : `none of ${count}`;
      status.textContent = shared.length ? `${range}; in every row: ${shared.join(", ")}` : range;
    }

    function line(row) {
      const tr = element("tr");
      shown.forEach((at) => {
        const column = columns[at];
        const value = cells[at][row];
        const text = column.kind === "number" ? (value === null ? "" : value.toLocaleString("en")) : strings[value];
        const look = column.kind === "status" ? tone(text) : value === 0 && column.kind === "number" ? " zero" : "";
        const cell = element("td", { className: column.kind + look }, ...parts(at === shown.at(-1) ? "text" : column.kind, text));
        if (at !== shown[0]) cell.dataset.head = column.name; // a phone shows it beside the cell
        if (at === 0 && details[row]) cell.prepend(more(tr, row));
        tr.append(cell);
      });
      return tr;
    }

    function more(owner, row) {
      const button = element("button", { type: "button", textContent: "+" });
      button.setAttribute("aria-expanded", "false");
      button.setAttribute("aria-label", "details");
      button.addEventListener("click", () => {
        const open = button.getAttribute("aria-expanded") === "true";
        button.setAttribute("aria-expanded", String(!open));
        button.textContent = open ? "+" : "−";
        if (open) return owner.nextElementSibling.remove();
        const lines = details[row].map((at) => strings[at]);
        const look = lines.every((line) => line.length < 40) ? "short" : "";
        owner.after(element("tr", { className: "detail" },
          element("td", { colSpan: shown.length }, element("pre", { className: look, textContent: lines.join("\n") }))));
      });
      return button;
    }

    draw();
  }

  document.querySelectorAll("[data-table]").forEach(show);
})();
