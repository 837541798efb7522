// Hit rate over the last hour, with marks; a mark compares before and after.

const LINES = [
  ["infinite", "infinite cache"],
  ["predicted", "predicted"],
  ["delivered", "delivered"],
];
const PAD = {left: 40, right: 12, top: 16, bottom: 22},
  LEAST_SPAN_MS = 300000;
/** Pixels between two labels, and of a bold character. */
const FLAG_GAP = 6,
  FLAG_CHAR = 8;
const MOST_MARK_CHARS = 60;
const chart = {points: [], marks: [], at: null, place: null};

$("time-legend").replaceChildren(
  ...[...LINES, ["mark", "mark"]].map(([name, label]) => {
    const key = draw(
      "svg",
      {viewBox: "0 0 12 12", "aria-hidden": "true", class: "chart key"},
      draw("path", {class: name, d: "M0 6H12"}),
    );
    return el("li", "", key, label);
  }),
);

function showSeries(series) {
  // `at` is where a step begins; it stands for all of it.
  chart.points = (series || [])
    .map((it) => {
      const from = Date.parse(it.at),
        to = from + 1000 * (it.seconds || 0);
      return {...it, from, to, ms: (from + to) / 2};
    })
    .filter((it) => known(it.ms));
  drawChart();
}

/** Pieces of a line without the points where nothing is known. */
function linePath(points, field, x, y) {
  let path = "",
    isOpen = false;
  for (const point of points) {
    const rate = point.prompt > 0 ? share(point[field], point.prompt) : null;
    if (!known(rate)) {
      isOpen = false;
      continue;
    }
    path += (isOpen ? "L" : "M") + x(point).toFixed(1) + " " + y(rate).toFixed(1) + (isOpen ? "" : "h.1");
    isOpen = true;
  }
  return path;
}

function axes(box, from, to) {
  const parts = [];
  for (const part of [0, 0.25, 0.5, 0.75, 1]) {
    const y = (box.bottom - part * (box.bottom - box.top)).toFixed(1);
    parts.push(
      draw("line", {class: "grid", x1: box.left, x2: box.right, y1: y, y2: y}),
      draw("text", {x: box.left - 6, y: Number(y) + 4, "text-anchor": "end"}, part * 100 + " %"),
    );
  }
  const count = box.right - box.left < 420 ? 3 : 6;
  for (let at = 0; at < count; at++) {
    const where = box.left + ((box.right - box.left) * at) / (count - 1);
    const anchor = at === 0 ? "start" : at === count - 1 ? "end" : "middle";
    parts.push(
      draw(
        "text",
        {x: where, y: box.bottom + 16, "text-anchor": anchor},
        clock(new Date(from + ((to - from) * at) / (count - 1)).toISOString(), to - from < 600000),
      ),
    );
  }
  return parts;
}

function drawChart() {
  const svg = $("chart"),
    {width, height} = chartSize,
    points = chart.points;
  attr(svg, {"aria-label": inWords(points)});
  if (!width) return;
  const box = {left: PAD.left, right: width - PAD.right, top: PAD.top, bottom: height - PAD.bottom};
  const to = points.length ? points[points.length - 1].to : Date.now();
  const from = Math.min(points.length ? points[0].from : to, to - LEAST_SPAN_MS);
  const xOf = (time) => box.left + ((time - from) / (to - from)) * (box.right - box.left);
  const x = (point) => xOf(point.ms),
    y = (rate) => box.bottom - Math.max(0, Math.min(1, rate)) * (box.bottom - box.top);
  chart.place = {from, to, box, x, y};
  const parts = axes(box, from, to);
  const most = Math.max(1, ...points.map((it) => it.prompt));
  for (const it of points)
    if (it.prompt > 0) {
      const tall = (it.prompt / most) * (box.bottom - box.top) * 0.18;
      const left = xOf(it.from),
        wide = Math.max(1, xOf(it.to) - left - 1);
      parts.push(draw("rect", {class: "volume", x: left, y: box.bottom - tall, width: wide, height: tall}));
    }
  parts.push(
    draw("path", {
      class: "area",
      d: runs(points)
        .map((it) => areaPath(it, x, y, box.bottom))
        .join(""),
    }),
  );
  const alone = runs(points).filter((it) => it.length === 1);
  for (const [name] of LINES) {
    parts.push(draw("path", {class: name, d: linePath(points, name, x, y)}));
    // A line of one point is next to nothing.
    for (const [it] of alone)
      if (known(it[name]))
        parts.push(draw("circle", {class: "dot-" + name, cx: x(it), cy: y(it[name] / it.prompt), r: 3}));
  }
  const marks = chart.marks
    .map(({mark, at}) => ({mark, at: Date.parse(at)}))
    .filter(({at}) => at >= from && at <= to)
    .map(({mark, at}) => ({mark, x: xOf(at)}));
  for (const it of marks)
    parts.push(draw("line", {class: "mark", x1: it.x, x2: it.x, y1: box.top, y2: box.bottom}));
  for (const it of flags(marks, width))
    parts.push(draw("text", {class: "flag", x: it.at, y: box.top - 4, "text-anchor": "middle"}, it.text));
  attr(svg, {viewBox: "0 0 " + width + " " + height});
  chart.cursor = draw("line", {class: "at", y1: box.top, y2: box.bottom, visibility: "hidden"});
  svg.replaceChildren(...parts, chart.cursor);
  pointAt(chart.at);
}

/** Labels of marks, oldest first; those that would lie on each other are one. */
function flags(marks, width) {
  const all = [];
  for (const {mark, x} of marks) {
    let it = flag(mark, mark, x, x, width);
    for (let before; (before = all.at(-1)) && before.at + before.half + FLAG_GAP > it.at - it.half; all.pop())
      it = flag(before.first, it.last, before.left, it.right, width);
    all.push(it);
  }
  return all;
}

function flag(first, last, left, right, width) {
  const text = first === last ? first : first + "–" + last,
    half = (text.length * FLAG_CHAR) / 2;
  return {first, last, left, right, text, half, at: Math.max(half, Math.min(width - half, (left + right) / 2))};
}

/** Neighbours with a known rate, in lists. */
function runs(points) {
  const all = [];
  points.forEach((it, at) => {
    if (!(it.prompt > 0)) return;
    if (at && points[at - 1].prompt > 0) all[all.length - 1].push(it);
    else all.push([it]);
  });
  return all;
}

function areaPath(points, x, y, bottom) {
  const top = points.map((it) => x(it).toFixed(1) + " " + y(it.delivered / it.prompt).toFixed(1)).join("L");
  return (
    "M" +
    x(points[0]).toFixed(1) +
    " " +
    bottom +
    "L" +
    top +
    "L" +
    x(points[points.length - 1]).toFixed(1) +
    " " +
    bottom +
    "Z"
  );
}

function inWords(points) {
  const first = points.find((it) => it.prompt > 0),
    last = points.findLast((it) => it.prompt > 0);
  if (!first) return "Hit rate over time: nothing known yet";
  const rate = (it) => percent(share(it.delivered, it.prompt));
  return (
    "Hit rate over time, from " +
    rate(first) +
    " at " +
    clock(first.at) +
    " to " +
    rate(last) +
    " at " +
    clock(last.at)
  );
}

/** The point with this time, told in words; null for none. */
function pointAt(time) {
  chart.at = time;
  const it =
    time === null
      ? null
      : chart.points.reduce(
          (a, b) => (Math.abs(b.ms - time) < Math.abs(a.ms - time) ? b : a),
          chart.points[0],
        );
  if (!it) {
    attr(chart.cursor, {visibility: "hidden"});
    set(
      $("time-read"),
      chart.points.length
        ? "Point at the chart, or use the arrow keys, for figures."
        : "Nothing to draw yet: no request with a report has ended.",
    );
    return;
  }
  const x = chart.place.x(it);
  attr(chart.cursor, {visibility: "visible", x1: x, x2: x});
  set(
    $("time-read"),
    clock(it.at) +
      ": " +
      (it.prompt > 0
        ? "delivered " +
          percent(share(it.delivered, it.prompt)) +
          ", predicted " +
          percent(share(it.predicted, it.prompt)) +
          ", infinite cache " +
          percent(share(it.infinite, it.prompt)) +
          " of " +
          tokens(it.prompt) +
          " prompt tokens, " +
          plural(it.requests, "request")
        : "unknown, " + plural(it.requests || 0, "request")),
  );
}

$("chart").addEventListener("pointermove", (event) => {
  if (!chart.points.length) return;
  const {from, to, box} = chart.place,
    left = $("chart").getBoundingClientRect().left;
  pointAt(from + ((event.clientX - left - box.left) / (box.right - box.left)) * (to - from));
});
$("chart").addEventListener("pointerleave", () => pointAt(null));
$("chart").addEventListener("keydown", (event) => {
  const step = {ArrowLeft: -1, ArrowRight: 1}[event.key];
  if (!step || !chart.points.length) return;
  event.preventDefault();
  const times = chart.points.map((it) => it.ms),
    now = chart.at === null ? times.length : times.findIndex((it) => it >= chart.at);
  pointAt(times[Math.max(0, Math.min(times.length - 1, (now < 0 ? times.length : now) + step))]);
});
const chartSize = drawnAt("chart", () => drawChart());

function showMarks(told) {
  chart.marks = told.marks;
  fill($("marks"), told.marks.slice(-12), newMark, (item, mark) => {
    item.mark = mark;
    const start = mark.mark + " · " + clock(mark.at, false) + " · ";
    set(item.firstChild, start + cut(mark.text, MOST_MARK_CHARS));
    item.firstChild.title = mark.text;
  });
  set(
    $("marks-hint"),
    told.marks.length
      ? "Choose a mark to compare before and after it."
      : "No marks. Set one before a change: prefix-gateway mark TEXT",
  );
  drawChart();
}

function newMark() {
  const button = el("button"),
    item = el("li", "", button);
  button.type = "button";
  attr(button, {"aria-pressed": "false"});
  button.onclick = async () => {
    const {mark} = item.mark;
    for (const other of $("marks").children) attr(other.firstChild, {"aria-pressed": String(other === item)});
    set($("compare"), "comparing …");
    try {
      set($("compare"), (await get("api/compare?mark=" + encodeURIComponent(mark))).sentence);
    } catch (error) {
      set($("compare"), "Cannot compare: " + error.message);
    }
  };
  return item;
}
