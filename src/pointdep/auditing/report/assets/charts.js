// PMI as bars, those below zero in another colour; setRange is told what was brushed.
function makeHistogram(data, range, setRange) {
  const place = document.getElementById("histogram");
  const { edges, counts } = data.histogram;
  if (!counts.length) {
    place.textContent = "No row has a PMI.";
    return { showRange() {} };
  }
  const ends = [edges[0], edges[edges.length - 1]];
  const xAxis = { title: "PMI (nats)", ends: [Math.min(ends[0], 0), Math.max(ends[1], 0)] };
  const yAxis = { title: "rows", ends: [0, 1.04 * Math.max(...counts)], least: 1 };
  let figure, band;

  function bar(count, i) {
    const { x, y, top, bottom } = figure;
    const from = i ? `from ${edges[i].toFixed(2)} ` : "";
    const to = i < counts.length - 1 || !i ? `to ${edges[i + 1].toFixed(2)}` : "and above";
    const [left, width] = [x(edges[i]), x(edges[i + 1]) - x(edges[i])];
    const height = count ? Math.max(bottom - y(count), 1) : 0; // a single row of many is seen, too
    const kind = edges[i + 1] <= 1e-9 ? "bar below" : "bar";
    const made = drawn("g", {});
    made.append(
      drawn("title", {}, `PMI ${from}${to}: ${count.toLocaleString("en")} rows`),
      drawn("rect", { class: kind, x: left, width, y: bottom - height, height }),
      drawn("rect", { class: "pointed", x: left, width, y: top, height: bottom - top }),
    );
    return made;
  }

  function showBand(low, high) {
    const inside = (value) => Math.min(Math.max(value, xAxis.ends[0]), xAxis.ends[1]);
    const [left, right] = [low, high].map((value) => figure.x(inside(value)));
    band.setAttribute("x", Math.min(left, right));
    band.setAttribute("width", Math.abs(right - left));
  }

  function showRange() {
    const { low, high } = range();
    if (low === -Infinity && high === Infinity) showBand(ends[0], ends[0]);
    else showBand(low, high);
  }

  keepDrawn(place, () => {
    figure = frame(place, xAxis, yAxis);
    const { x, top, bottom } = figure;
    band = drawn("rect", { class: "band", y: top, height: bottom - top });
    const zero = drawn("line", { class: "zero", x1: x(0), x2: x(0), y1: top, y2: bottom });
    figure.inner.append(band, zero, ...counts.map(bar));
    showRange();
  });
  attachBrush(place, () => figure, showBand, (low, high) => {
    // A brush that reaches the end of the bars means all that lies beyond, too.
    if (low === high) showRange();
    else setRange(low <= ends[0] ? -Infinity : low, high >= ends[1] ? Infinity : high);
  });
  place.addEventListener("dblclick", () => setRange(-Infinity, Infinity));
  return { showRange };
}

// A range of x by dragging; of a brush that is given up, or a mere click, onEnd gets equal ends.
function attachBrush(place, figure, onMove, onEnd) {
  const least = 4; // pixels
  let start = null;
  const pixel = (event) => event.clientX - place.getBoundingClientRect().left;
  const ends = (event) => [start, pixel(event)].sort((a, b) => a - b).map(figure().valueAt);
  place.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    start = pixel(event);
    place.setPointerCapture(event.pointerId);
  });
  place.addEventListener("pointermove", (event) => {
    if (start !== null) onMove(...ends(event));
  });
  for (const name of ["pointerup", "pointercancel"]) {
    place.addEventListener(name, (event) => {
      if (start === null) return;
      const done = name === "pointerup" && Math.abs(pixel(event) - start) >= least;
      const [low, high] = done ? ends(event) : [0, 0];
      start = null;
      onEnd(low, high);
    });
  }
}

// log r as observed on unseen pairs, with its 95% interval, over log r as estimated.
function drawReliability(data) {
  const place = document.getElementById("reliability");
  if (!place) return;
  const points = data.reliability.map((point) => ({ ...point, reach: 1.96 * point.stderr }));
  const all = points.flatMap((p) => [p.predicted, p.observed - p.reach, p.observed + p.reach]);
  const ends = [Math.min(...all) - 0.2, Math.max(...all) + 0.2];
  keepDrawn(place, () => {
    const xAxis = { title: "log r, as estimated", ends };
    const { inner, x, y } = frame(place, xAxis, { title: "log r, as observed", ends });
    const [low, high] = ends;
    inner.append(drawn("line", { class: "equal", x1: x(low), x2: x(high), y1: y(low), y2: y(high) }));
    for (const { predicted, observed, reach } of points) {
      const at = x(predicted);
      const said = `estimated ${predicted.toFixed(2)}, observed ${observed.toFixed(2)} ± ${reach.toFixed(2)}`;
      const point = drawn("g", { class: "point" });
      point.append(
        drawn("title", {}, said),
        drawn("line", { x1: at, x2: at, y1: y(observed - reach), y2: y(observed + reach) }),
        drawn("circle", { cx: at, cy: y(observed), r: 4 }),
      );
      inner.append(point);
    }
  });
}
