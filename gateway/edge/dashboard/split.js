// Where the time to the first token goes, and how many requests there really are at once.

const PARTS = [
  ["gateway_queue", "gateway queue", "queue_ms"],
  ["engine_queue", "queue inside the engine", "engine_queue_ms"],
  ["prefill_part", "prefill", "prefill_ms"],
];
const MOST_BARS = 60;
const split = {told: [], point: null};
const splitSize = drawnAt("split", () => drawSplit()),
  pointSize = drawnAt("point-bars", () => drawPoint());
legend("split-legend", [...PARTS, ["unsplit", "after the gateway, not told apart"]]);

const partsTable = new Table(
  "parts",
  [
    {name: "part", read: (it) => it.name},
    {name: "p50", read: (it) => ms(it.p50), n: true},
    {name: "p90", read: (it) => ms(it.p90), n: true},
    {name: "share of all", read: (it) => percent(it.share, 0), n: true},
    {name: "streams", read: (it) => num(it.count), n: true},
  ],
  "No stream has ended yet; plain answers do not tell their TTFT.",
);

/** [class, ms] of one request's parts; what is not known apart is one part. */
function partsOf(record) {
  if (known(record.engine_queue_ms) && known(record.prefill_ms))
    return PARTS.map(([name, , field]) => [name, record[field]]);
  return [
    ["gateway_queue", record.queue_ms],
    ["unsplit", Math.max(0, record.ttft_ms - record.queue_ms)],
  ];
}

function showSplit(records) {
  const told = records.filter((it) => known(it.ttft_ms));
  partsTable.show(
    !told.length
      ? []
      : [...PARTS, [null, "in all", "ttft_ms"]].map(([, name, field]) => {
          const of = told.filter((it) => known(it[field])),
            values = of.map((it) => it[field]);
          const sum = (list) => list.reduce((a, b) => a + b, 0);
          return {
            name,
            p50: quantile(values, 0.5),
            p90: quantile(values, 0.9),
            count: values.length,
            share: share(sum(values), sum(of.map((it) => it.ttft_ms))),
          };
        }),
  );
  split.told = told;
  drawSplit();
}

function drawSplit() {
  const svg = $("split"),
    {width, height} = splitSize,
    shown = split.told.slice(0, MOST_BARS).reverse();
  attr(svg, {
    "aria-label": "TTFT of the last " + plural(shown.length, "stream") + ", the same in figures below",
  });
  svg.toggleAttribute("hidden", !shown.length);
  if (!shown.length || !width) return;
  const most = Math.max(
      1,
      quantile(
        shown.map((it) => it.ttft_ms),
        0.97,
      ),
    ),
    left = 52,
    bottom = height - 16;
  const step = (width - left) / MOST_BARS,
    parts = scale(width, left, bottom, most, ms);
  shown.forEach((record, at) => {
    let top = bottom;
    const bar = draw("g", {}, draw("title", {}, record.engine + ": TTFT " + ms(record.ttft_ms)));
    for (const [name, value] of partsOf(record)) {
      const tall = Math.min((value / most) * (bottom - 8), top - 2);
      if (tall > 0)
        bar.append(
          draw("rect", {
            class: name,
            x: left + at * step,
            y: (top -= tall),
            width: Math.max(1, step - 1.5),
            height: tall,
          }),
        );
    }
    parts.push(bar);
  });
  parts.push(
    draw("text", {x: left, y: height - 2}, "older"),
    draw("text", {x: width, y: height - 2, "text-anchor": "end"}, "newest"),
  );
  attr(svg, {viewBox: "0 0 " + width + " " + height});
  svg.replaceChildren(...parts);
}

/** A line at the top, in the middle and at 0. */
function scale(width, left, bottom, most, format) {
  return [0, 0.5, 1].flatMap((part) => {
    const y = bottom - part * (bottom - 8);
    return [
      draw("line", {class: "grid", x1: left, x2: width, y1: y, y2: y}),
      draw("text", {x: left - 6, y: y + 4, "text-anchor": "end"}, format(part * most)),
    ];
  });
}

/** Shares of the time at each number in flight; neighbours are put together where there are many. */
function showPoint(told) {
  set($("point"), told.sentence);
  attr($("point-bars"), {"aria-label": told.sentence});
  split.point = told;
  drawPoint();
}

function drawPoint() {
  const told = split.point;
  if (!told) return;
  const at = Object.entries(told.seconds_at).map(([n, s]) => [n === "more" ? 65 : Number(n), s]);
  const svg = $("point-bars"),
    {width, height} = pointSize,
    total = at.reduce((sum, [, s]) => sum + s, 0);
  svg.toggleAttribute("hidden", !(total > 0));
  if (!(total > 0) || !width) return;
  const highest = Math.max(8, ...at.map(([n]) => n), Math.min(told.slots, 65)),
    left = 52,
    bottom = height - 16;
  const step = (width - left) / (highest + 1),
    most = Math.max(...at.map(([, s]) => s / total));
  const parts = scale(width, left, bottom, most, (part) => percent(part, 0));
  for (const [n, s] of at) {
    const tall = Math.max(1, (s / total / most) * (bottom - 8));
    parts.push(
      draw(
        "rect",
        {
          class: n ? "busy" : "free",
          x: left + n * step + 1,
          y: bottom - tall,
          width: Math.max(1, step - 2),
          height: tall,
        },
        draw("title", {}, (n > 64 ? "more than 64" : n) + " in flight: " + percent(s / total)),
      ),
    );
  }
  for (let n = 0; n <= highest; n += highest > 24 ? 8 : highest > 12 ? 4 : 2)
    parts.push(draw("text", {x: left + (n + 0.5) * step, y: height - 2, "text-anchor": "middle"}, n));
  if (told.slots <= highest) {
    const x = left + (told.slots + 0.5) * step;
    parts.push(
      draw("line", {class: "slots", x1: x, x2: x, y1: 6, y2: bottom}),
      draw("text", {x: x - 4, y: 14, "text-anchor": "end"}, "slots"),
    );
  }
  attr(svg, {viewBox: "0 0 " + width + " " + height});
  svg.replaceChildren(...parts);
}
