"""What the tests of the site ask a browser about a page, in JavaScript; most answer with a list of what is wrong."""

from importlib.resources import files

AXE = (files("axe_playwright_python") / "axe.min.js").read_text()
# Contrast is measured by COLOURS below on all pages, and by axe, which takes longer, on some; formulas are MathJax's.
RUN_AXE = """async only => (await axe.run({exclude: ['mjx-container', '.highlight']}, {
    resultTypes: ['violations'], preload: false,
    ...(only ? {runOnly: [only]} : {rules: {'color-contrast': {enabled: false}}}),
  })).violations.filter(found => ['serious', 'critical'].includes(found.impact))
  .map(found => ({rule: found.id, where: found.nodes.slice(0, 5).map(node => node.html.slice(0, 160))}))"""
SHIFTS = """window.shifts = 0; new PerformanceObserver(list => {
  for (const shift of list.getEntries()) if (!shift.hadRecentInput) window.shifts += shift.value;
}).observe({type: 'layout-shift', buffered: true});"""
INSPECT = """() => ({
  links: [...document.querySelectorAll('a[href]')].map(a => a.getAttribute('href')),
  anchors: [...document.querySelectorAll('[id], a[name]')].map(e => e.id || e.name),
  broken: [...document.images].filter(i => !i.complete || i.naturalWidth === 0).map(i => i.src),
  bare: [...document.images].filter(i => i.alt.length < 10 || /[.](png|svg)$/.test(i.alt)).map(i => i.src),
  formulas: document.querySelectorAll('.math').length,
  untypeset: [...document.querySelectorAll('.math:not(:has(mjx-container))')].map(math => math.outerHTML),
  misread: [...document.querySelectorAll('mjx-merror, [data-mjx-error]')].map(e => e.outerHTML.slice(0, 300)),
  scripts: document.querySelectorAll('mjx-script').length,
  oversized: [...document.querySelectorAll('mjx-script > :not(mjx-spacer)')].filter(e => {
    const [own, line] = [e, e.closest('mjx-container')].map(part => parseFloat(getComputedStyle(part).fontSize));
    return own > 0.9 * line;
  }).map(e => e.outerHTML.slice(0, 300)),
  unrendered: ['\\\\(', '\\\\[', '$$', '{eq}', '{ref}']
    .filter(sign => document.querySelector('article').innerText.includes(sign)),
})"""
DRAWN = "() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"
OVERFLOW = """() => {
  const wide = document.documentElement.clientWidth, more = document.documentElement.scrollWidth - wide;
  const scrolls = e => e && e !== document.body &&
    (['auto', 'scroll', 'hidden'].includes(getComputedStyle(e).overflowX) || scrolls(e.parentElement));
  return [...(more ? [`the page is ${more} wider than its window`] : []), ...[...document.querySelectorAll('article *')]
    .filter(e => e.checkVisibility() && e.getBoundingClientRect().right > wide + 1 && !scrolls(e.parentElement))
    .map(e => e.outerHTML.slice(0, 120))];
}"""
# Tables and formulas that are wider than their place, hidden or scrolled, and formulas too small to read.
CUT = """() => {
  const hides = e => ['auto', 'scroll', 'hidden', 'clip'].includes(getComputedStyle(e).overflowX);
  const cut = (e, own = e) => e && e.tagName !== 'ARTICLE' &&
    (((e === own || hides(e)) && e.scrollWidth > e.clientWidth + 1 && e.clientWidth > 0) || cut(e.parentElement, own));
  return [...document.querySelectorAll('article table, article div.math, article mjx-container[display="true"]')]
    .filter(e => e.checkVisibility() && cut(e)).map(e => e.outerHTML.slice(0, 120));
}"""
FIT = f"() => [...({OVERFLOW})(), ...({CUT})()]"
# Where the focus is, on what path from the root, and whether one sees it: by an outline, a shadow or an underline.
FOCUSED = """() => {
  const e = document.activeElement, style = getComputedStyle(e);
  const path = p => p ? `${p.className} ${p.tagName.toLowerCase()} ${path(p.parentElement)}` : '';
  return {what: e.outerHTML.slice(0, 120), inside: path(e),
          seen: [style.outlineStyle, style.boxShadow, style.textDecorationLine].some(value => value !== 'none')};
}"""
# On paper stands the article alone, black on white and over nearly the whole width.
PRINTED = """() => {
  const share = document.querySelector('article').getBoundingClientRect().width / document.documentElement.clientWidth;
  return [
    ...['.bd-sidebar-primary', '.bd-sidebar-secondary', '.bd-header-article', '.prev-next-area', '.bd-footer']
      .filter(part => [...document.querySelectorAll(part)].some(e => e.getClientRects().length)),
    ...[getComputedStyle(document.body).backgroundColor].filter(ground => ground !== 'rgb(255, 255, 255)'),
    ...[share].filter(share => share < 0.85), ...(OVERFLOW)(),
  ];
}""".replace("OVERFLOW", OVERFLOW)
# In a scheme, up to five texts that stand out too little from their ground (WCAG 2 asks for a contrast of 4.5 at level
# AA, and the lines under figures are small), and recoloured images: a dark page inverts drawings and keeps their hues.
COLOURS = """async scheme => {
  document.documentElement.dataset.theme = scheme;
  await (DRAWN)();
  const channels = c => (c.match(/[0-9.]+/g) || [0, 0, 0, 0]).map(Number);
  const light = c => channels(c).slice(0, 3).map(v => v / 255)
    .map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const grounds = new Map([[null, 'rgb(255, 255, 255)']]);
  const ground = e => {
    if (!grounds.has(e)) {
      const own = getComputedStyle(e).backgroundColor, c = channels(own);
      grounds.set(e, c.length < 4 || c[3] === 1 ? own : ground(e.parentElement));
    }
    return grounds.get(e);
  };
  const ratio = e => {
    const [a, b] = [light(getComputedStyle(e).color), light(ground(e))].sort((x, y) => y - x);
    return (a + 0.05) / (b + 0.05);
  };
  const texts = 'p, li, h1, h2, h3, td, th, figcaption, pre, code, pre span, a';
  return [
    ...[...document.querySelectorAll(`article :is(${texts})`)]
      .filter(e => e.textContent.trim() && e.getClientRects().length && getComputedStyle(e).visibility === 'visible')
      .filter(e => ratio(e) < (e.tagName === 'FIGCAPTION' ? 7 : 4.5))
      .slice(0, 5).map(e => [ratio(e), e.outerHTML.slice(0, 120)]),
    ...[...document.querySelectorAll('article img')].map(image => [getComputedStyle(image).filter, image.src])
      .filter(([filter]) => !['none', 'invert(1) hue-rotate(180deg)'].includes(filter)),
  ];
}""".replace("DRAWN", DRAWN)
