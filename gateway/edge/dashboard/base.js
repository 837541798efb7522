"use strict";
// Everything from the gateway goes through textContent: names, ids and texts are chosen by clients.
// What has not changed is not written again, since a page of thousands of nodes is refreshed each second.

const $ = (id) => document.getElementById(id);
const SVG = document.querySelector("svg").namespaceURI;
const UNKNOWN = "unknown";

function set(node, text) {
  if (node.shown !== text) {
    node.shown = text;
    node.textContent = text;
  }
  return node;
}

function style(node, name, value) {
  const key = "style_" + name;
  if (node[key] !== value) {
    node[key] = value;
    node.style[name] = value;
  }
}

function attr(node, values) {
  for (const [name, value] of Object.entries(values))
    if (node["attr_" + name] !== value) {
      node["attr_" + name] = value;
      node.setAttribute(name, value);
    }
  return node;
}

function el(tag, className, ...children) {
  const node = document.createElement(tag);
  if (className) node.className = className;
  node.append(...children);
  return node;
}

const draw = (tag, values = {}, ...children) => {
  const node = attr(document.createElementNS(SVG, tag), values);
  node.append(...children);
  return node;
};

/** Children of `root`, one for each of `items`: those that are there are used again, `make` adds others. */
function fill(root, items, make, update) {
  while (root.childElementCount > items.length) root.lastElementChild.remove();
  while (root.childElementCount < items.length) root.append(make());
  items.forEach((item, at) => update(root.children[at], item, at));
}

const known = (value) => value !== null && value !== undefined && Number.isFinite(value);

const FORMATS = [0, 1, 2].map(
  (digits) => new Intl.NumberFormat("en", {minimumFractionDigits: digits, maximumFractionDigits: digits}),
);
const num = (value, digits = 0) => (known(value) ? FORMATS[digits].format(value) : UNKNOWN);
const percent = (value, digits = 1) => (known(value) ? num(value * 100, digits) + "\u00a0%" : UNKNOWN);
const share = (part, whole) => (known(part) && known(whole) && whole > 0 ? part / whole : null);
const plural = (count, one, many = one + "s") => num(count) + " " + (count === 1 ? one : many);

/** Tokens in three digits; whole below ten thousand. */
function tokens(value) {
  if (!known(value)) return UNKNOWN;
  const size = Math.abs(value);
  if (size < 1e4) return num(value);
  const [unit, name] = size < 1e6 ? [1e3, "\u00a0k"] : size < 1e9 ? [1e6, "\u00a0M"] : [1e9, "\u00a0G"];
  const digits = size / unit < 10 ? 2 : size / unit < 100 ? 1 : 0;
  return num(value / unit, digits) + name;
}

const ms = (value) =>
  !known(value)
    ? UNKNOWN
    : value < 1000
      ? num(value) + "\u00a0ms"
      : num(value / 1000, value < 9995 ? 2 : 1) + "\u00a0s";

function seconds(value) {
  if (!known(value)) return UNKNOWN;
  if (value < 10) return num(value, 1) + "\u00a0s";
  if (value < 120) return num(value) + "\u00a0s";
  if (value < 7200) return num(value / 60) + "\u00a0min";
  return value < 172800 ? num(value / 3600, 1) + "\u00a0h" : num(value / 86400, 1) + "\u00a0days";
}

const short = (id) => (id.length > 13 ? "…" + id.slice(-12) : id);

const cut = (text, most) => (text.length > most ? text.slice(0, most - 1) + "…" : text);

/** Local time of an ISO time; the page's reader thinks in local time, and the log's UTC is in the title. */
function clock(iso, withSeconds = true) {
  const at = new Date(iso);
  if (Number.isNaN(at.getTime())) return UNKNOWN;
  const time = at.toLocaleTimeString([], {
    hour: "2-digit",
    minute: "2-digit",
    ...(withSeconds ? {second: "2-digit"} : {}),
    hourCycle: "h23",
  });
  const today = at.toDateString() === new Date().toDateString();
  return today ? time : at.toLocaleDateString([], {month: "short", day: "numeric"}) + " " + time;
}

/** The value at `part` of `values`, 0.5 for half of them within; null where there is none. */
function quantile(values, part) {
  if (!values.length) return null;
  const sorted = values.slice().sort((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * part))];
}

/** `columns`: {name, read, n: a number, tone: row to class, cls, minor: not on phones, bar: row to share}. */
class Table {
  constructor(id, columns, empty) {
    this.columns = columns;
    const line = el(
      "tr",
      "",
      ...columns.map((it) => {
        const cell = set(el("th", this.cls(it)), it.name);
        cell.scope = "col";
        return cell;
      }),
    );
    this.head = el("thead", "", line);
    this.body = el("tbody");
    this.empty = set(el("caption", "dim"), empty);
    $(id).replaceChildren(this.empty, this.head, this.body);
    this.head.hidden = true;
  }

  cls(column) {
    return (column.n ? "n " : "") + (column.cls || "") + (column.minor ? " minor" : "");
  }

  show(rows) {
    this.head.hidden = !rows.length;
    this.empty.hidden = rows.length > 0;
    fill(
      this.body,
      rows,
      () => this.line(),
      (line, row) =>
        this.columns.forEach((column, at) => {
          const cell = line.children[at],
            text = column.read(row);
          set(cell.firstChild, text);
          if (cell.tip !== text) cell.title = cell.tip = text;
          if (column.bar) this.drawBar(cell.lastChild, column.bar(row));
          if (column.tone) {
            const className = this.cls(column) + " " + column.tone(row);
            if (cell.className !== className) cell.className = className;
          }
        }),
    );
  }

  /** An empty bar would say 0. */
  drawBar(bar, part) {
    if (bar.hidden === known(part)) bar.hidden = !known(part);
    style(bar.firstChild, "width", Math.max(0, Math.min(1, part || 0)) * 100 + "%");
  }

  line() {
    return el(
      "tr",
      "",
      ...this.columns.map((column) => {
        const cell = el("td", this.cls(column), el("span"));
        if (column.bar) cell.append(el("span", "share-bar", el("i")));
        return cell;
      }),
    );
  }
}

/** A picture's size in pixels, 0 while it has none. To ask for it each time would lay out the page. */
function drawnAt(id, redraw) {
  const node = $(id),
    size = {width: 0, height: 0};
  new ResizeObserver(([entry]) => {
    size.width = entry.contentRect.width;
    size.height = entry.contentRect.height;
    redraw();
  }).observe(node);
  return size;
}

/** Buttons of which one is pressed. `options` are [value, label]. */
function choice(id, options, chosen, onChoice) {
  const buttons = options.map(([value, label]) => {
    const button = set(el("button"), label);
    button.type = "button";
    button.onclick = () => {
      press(value);
      onChoice(value);
    };
    return [value, button];
  });
  const press = (value) =>
    buttons.forEach(([its, button]) => attr(button, {"aria-pressed": String(its === value)}));
  $(id).replaceChildren(...buttons.map(([, button]) => button));
  press(chosen);
}

function legend(id, entries) {
  $(id).replaceChildren(
    ...entries.map(([className, label]) =>
      el(
        "li",
        "",
        draw(
          "svg",
          {viewBox: "0 0 12 12", "aria-hidden": "true"},
          draw("rect", {class: className, x: 1, y: 1, width: 10, height: 10, rx: 2}),
        ),
        label,
      ),
    ),
  );
}
