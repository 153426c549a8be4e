/* Nothing is cut at any width: a wide table gets smaller type, then a block for each row; a wide formula is set smaller. */

(() => {
  const LEAST = 0.4; // of a formula's size
  const SIGNS = ["3D", "2264", "2265", "2248", "21D2", "27F9", "2B", "2212"].map((code) => `.mjx-c${code}`).join();
  const over = (box) => box.scrollWidth > box.clientWidth + 1;
  const boxOf = (table) => table.closest(".pst-scrollable-table-container, .text_html") ?? table.parentElement;

  /* Each cell knows its column's heads, and rows and cells keep their roles when they are laid out as blocks. */
  function name(table) {
    const heads = [];
    for (const row of table.tHead?.rows ?? []) {
      let place = 0;
      for (const cell of row.cells)
        for (let n = 0; n < cell.colSpan; n++) heads[place] = `${heads[place++] ?? ""} ${cell.textContent}`.trim();
    }
    let above = []; // heads of rows that reach over several rows
    for (const body of table.tBodies)
      for (const row of body.rows) {
        row.setAttribute("role", "row");
        let place = heads.length - [...row.cells].reduce((sum, cell) => sum + cell.colSpan, 0);
        const tall = [...row.cells].filter((cell) => cell.rowSpan > 1);
        above = [...above.slice(0, place), ...tall.map((cell) => cell.textContent)];
        row.dataset.above = above.slice(0, place).join(", ");
        for (const cell of row.cells) {
          cell.dataset.head = heads[place] ?? "";
          cell.setAttribute("role", cell.tagName === "TH" ? "rowheader" : "cell");
          place += cell.colSpan;
        }
      }
    table.setAttribute("role", "table");
    for (const part of [table.tHead, ...table.tBodies]) part?.setAttribute("role", "rowgroup");
  }

  function fitTables() {
    const all = [...document.querySelectorAll("article table")];
    all.forEach((table) => table.classList.remove("tight", "cards"));
    const wide = () => all.filter((table) => over(boxOf(table)) || over(table.parentElement));
    wide().forEach((table) => table.classList.add("tight"));
    for (const table of wide()) {
      name(table);
      table.classList.add("cards");
    }
  }

  /* Each line of a formula may be broken before a relation, a plus or minus, and after a wide space, of its first level. */
  function breakable(formula) {
    const rows = formula.querySelectorAll("mjx-math > mjx-mtable > mjx-table > mjx-itable > * > mjx-mtd");
    for (let line of rows.length ? rows : formula.querySelectorAll("mjx-math")) {
      while (line.children.length === 1 && line.firstElementChild.matches("mjx-mrow, mjx-mstyle, mjx-texatom"))
        line = line.firstElementChild;
      line.classList.add("broken");
      for (const part of [...line.children])
        if (part.matches("mjx-mo") && part.querySelector(SIGNS)) part.before(document.createElement("wbr"));
        else if (part.matches("mjx-mstyle, mjx-mspace") && part.offsetWidth > 18) part.after(document.createElement("wbr"));
    }
  }

  const formulaOf = (box) => box.querySelector("mjx-container");

  /* The share of its own width that a formula has room for. */
  function room(box) {
    const formula = formulaOf(box);
    const wide = Math.max(formula.scrollWidth, box.querySelector("mjx-math").offsetWidth);
    if (box.tagName === "SPAN") return box.closest("p, li, dd, td, div").clientWidth / wide;
    return Math.min((box.clientWidth + 1) / box.scrollWidth, (formula.clientWidth + 1) / wide);
  }

  /* Of all formulas at once, reads before writes, so that the page is laid out a few times only. */
  function fitFormulas() {
    const all = [...document.querySelectorAll("article .math:has(mjx-container)")];
    for (const box of all.filter((box) => box.classList.contains("stacked"))) {
      formulaOf(box).style.fontSize = `${box.dataset.size}%`;
      box.classList.remove("stacked");
    }
    const narrow = all.filter((box) => room(box) < 1);
    for (const box of narrow) {
      box.dataset.size ??= parseFloat(formulaOf(box).style.fontSize) || 100;
      box.classList.add("stacked");
      if (!box.querySelector("wbr")) breakable(formulaOf(box));
    }
    for (let pass = 0; pass < 6; pass++)
      for (const [box, share] of narrow.map((box) => [box, room(box)]).filter(([, share]) => share < 1)) {
        const size = Math.max(LEAST * box.dataset.size, 0.98 * share * parseFloat(formulaOf(box).style.fontSize));
        formulaOf(box).style.fontSize = `${size}%`;
      }
  }

  function fit() {
    fitTables();
    fitFormulas();
    // What still scrolls can take the focus, so that a keyboard scrolls it.
    for (const part of document.querySelectorAll("div.math, .cell_output .text_html, .pst-scrollable-table-container, pre"))
      over(part) ? (part.tabIndex = 0) : part.removeAttribute("tabindex");
  }

  /* A link to a row inside a folded part opens it. */
  function reveal() {
    const target = location.hash.length > 1 && document.getElementById(location.hash.slice(1));
    const folded = [];
    for (let part = target; part; part = part.parentElement) if (part.tagName === "DETAILS") folded.push(part);
    folded.forEach((part) => (part.open = true));
    if (folded.length) target.scrollIntoView();
  }

  let width = 0;
  addEventListener("resize", () => {
    if (width !== innerWidth) fit();
    width = innerWidth;
  });
  addEventListener("hashchange", reveal);
  document.addEventListener("toggle", fit, true);
  addEventListener("DOMContentLoaded", () => {
    fit();
    reveal();
  });
  addEventListener("load", async () => {
    await window.MathJax?.startup?.promise;
    fit();
  });
})();
