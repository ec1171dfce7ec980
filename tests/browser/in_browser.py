# SPDX-License-Identifier: Apache-2.0
"""What the browser tests share: Chromium or the reason why there is none, checks, and an audit.

They need Debian's chromium and the packages of requirements.txt, which `scripts/install_deps
browser` puts into build/browser. Without them an import of this file says so and exits 77.
"""
import importlib.util
import os
import shutil
import sys

HERE = os.path.dirname(os.path.abspath(__file__))


def skip(reason):
    print("skipped: " + reason)
    sys.exit(77)


# The packages, from this interpreter or from the one that install_deps made.
MISSING = [name for name in ("playwright", "axe_playwright_python")
           if importlib.util.find_spec(name) is None]
if MISSING:
    other = os.environ.get("KVG_BROWSER_PYTHON") or os.path.join(
        HERE, "..", "..", "build", "browser", "bin", "python")
    if os.path.exists(other) and not os.environ.get("KVG_BROWSER_TRIED"):
        os.environ["KVG_BROWSER_TRIED"] = "1"
        os.execv(other, [other] + sys.argv)
    skip("no Python package " + " and ".join(MISSING) + " (scripts/install_deps browser)")
CHROMIUM = os.environ.get("KVG_CHROMIUM") or shutil.which("chromium")
if not CHROMIUM:
    skip("there is no chromium (scripts/install_deps browser)")

AXE = os.path.join(os.path.dirname(importlib.util.find_spec("axe_playwright_python").origin),
                   "axe.min.js")
FAULTS = []


def check(condition, what):
    print(("ok    " if condition else "FAULT ") + what)
    if not condition:
        FAULTS.append(what)


def beside():
    """Said after a time where other programs took part of it."""
    load, cores = os.getloadavg()[0], os.cpu_count()
    return f" beside others (load {load:.1f} on {cores} cores)" if load > cores else ""


# What an accessibility checker asks first: names, labels, ids, contrast, places for the tab key.
AUDIT = """() => {
  const faults = [], add = (node, what) => faults.push(what + ': ' + node.outerHTML.slice(0, 110));
  const ids = new Set();
  for (const node of document.querySelectorAll('[id]')) {
    if (ids.has(node.id)) add(node, 'id twice');
    ids.add(node.id);
  }
  for (const node of document.querySelectorAll('svg:not([aria-hidden])'))
    if (!node.getAttribute('aria-label') || !node.getAttribute('role')) add(node, 'figure without a name');
  for (const node of document.querySelectorAll('input,select'))
    if (!node.labels || !node.labels.length) add(node, 'field without a label');
  for (const node of document.querySelectorAll('button,a[href],summary'))
    if (!(node.getAttribute('aria-label') || node.textContent).trim()) add(node, 'no name');
  for (const node of document.querySelectorAll('table')) {
    if (node.classList.contains('board') && !node.caption) add(node, 'table without a caption');
    if (!node.querySelector('th[scope]')) add(node, 'table without headings');
  }
  for (const node of document.querySelectorAll('[aria-hidden=true] [tabindex],[aria-hidden=true] a'))
    add(node, 'can be reached and not be heard');
  if (document.querySelectorAll('h1').length !== 1) faults.push('not one h1');
  if (!document.documentElement.lang || !document.title) faults.push('no language or title');
  let last = 1;
  for (const node of document.querySelectorAll('h1,h2,h3,h4,h5')) {
    const level = Number(node.tagName[1]);
    if (level > last + 2) add(node, 'a level of headings left out');
    last = level;
  }
  const parse = text => text.match(/[\\d.]+/g).map(Number);
  const luminance = ([r, g, b]) => {
    const f = v => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
    return 0.2126 * f(r) + 0.7152 * f(g) + 0.0722 * f(b);
  };
  const ground = node => {
    for (; node; node = node.parentElement) {
      const c = parse(getComputedStyle(node).backgroundColor);
      if (c.length < 4 || c[3] > 0) return c;
    }
    return [255, 255, 255];
  };
  const seen = new Set();
  for (const node of document.querySelectorAll('body *')) {
    if (node.closest('svg') || !node.getClientRects().length) continue;
    if (!Array.from(node.childNodes).some(c => c.nodeType === 3 && c.textContent.trim())) continue;
    const style = getComputedStyle(node), a = parse(style.color), b = ground(node);
    const key = a + '|' + b;
    if (seen.has(key)) continue;
    seen.add(key);
    const x = luminance(a), y = luminance(b);
    const ratio = (Math.max(x, y) + 0.05) / (Math.min(x, y) + 0.05);
    if (ratio < 4.5) add(node, 'contrast ' + ratio.toFixed(2));
  }
  return faults;
}"""
# All of a page at once, also what is folded or out of view.
UNFOLD = """() => {
  dispatchEvent(new Event('beforeprint'));
  dispatchEvent(new Event('afterprint'));
  document.querySelectorAll('section,details.maps').forEach(
      node => { node.style.contentVisibility = 'visible'; });
}"""
# The rules of WCAG 2.2 A and AA and the checker's own advice.
RUN_AXE = """async () => {
  const found = await axe.run(document, {resultTypes: ['violations']});
  return found.violations.map(v => v.id + ' (' + v.nodes.length + '): ' +
      v.nodes.slice(0, 2).map(n => n.html.slice(0, 90) + ' ' + (n.any[0] || n.all[0] || {}).message).join(' | '));
}"""


class Browser:
    def __init__(self, playwright):
        self.browser = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu", "--hide-scrollbars"])

    def open(self, place, scheme="light", width=1400, script=True):
        """A page of a file, or of an address; `noise` are its messages, `fetched` its requests."""
        context = self.browser.new_context(viewport={"width": width, "height": 1000},
                                           color_scheme=scheme, java_script_enabled=script,
                                           accept_downloads=True)
        context.set_default_timeout(120_000)  # ms; a busy machine is no fault
        page = context.new_page()
        page.noise = []
        page.fetched = []
        page.on("console", lambda m: page.noise.append(m.text))
        page.on("pageerror", lambda e: page.noise.append(str(e)))
        page.on("dialog", lambda d: (page.noise.append("a dialog"), d.dismiss()))
        page.on("request", lambda r: page.fetched.append(r.url))
        page.goto(place if "://" in place else "file://" + place)
        return page

    def audit(self, page, name):
        page.evaluate(UNFOLD)
        # What came into view answers in the frames that follow.
        page.evaluate("new Promise(r => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(r, 100))))")
        faults = page.evaluate(AUDIT)
        check(faults == [], f"{name}: names, labels, contrast {faults[:4]}")
        page.evaluate(open(AXE, encoding="utf-8").read())
        found = page.evaluate(RUN_AXE)
        check(found == [], f"{name}: axe finds nothing {found[:6]}")
