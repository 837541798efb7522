// Texts that are hard to read: a contrast with what is behind them below 4.5 (WCAG 2, level AA).
(() => {
  const parse = (text) => { const [r, g, b, a = 1] = text.match(/[\d.]+/g).map(Number); return {rgb: [r, g, b], a}; };
  const light = (rgb) => rgb.map((it) => it / 255).map((it) => it <= .04045 ? it / 12.92 : ((it + .055) / 1.055) ** 2.4)
    .reduce((sum, it, at) => sum + it * [.2126, .7152, .0722][at], 0);
  const behind = (node) => { for (let it = node; it; it = it.parentElement) {
    const colour = parse(getComputedStyle(it).backgroundColor); if (colour.a > 0) return colour.rgb; } };
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT), poor = [];
  while (texts.nextNode()) {
    const node = texts.currentNode.parentElement;
    if (!texts.currentNode.data.trim() || !node.checkVisibility() || ["SCRIPT", "STYLE", "NOSCRIPT"].includes(node.tagName)) continue;
    const its = getComputedStyle(node), isDrawn = node.namespaceURI.endsWith("svg");
    if (isDrawn && node.tagName === "title") continue;
    const [a, b] = [light(parse(isDrawn ? its.fill : its.color).rgb), light(behind(node))];
    const ratio = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
    if (ratio < 4.5) poor.push(ratio.toFixed(2) + " " + node.className + " " + texts.currentNode.data.trim().slice(0, 40));
  }
  return poor;
})()
