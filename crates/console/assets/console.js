// What a page gains with a script: charts of the last hour, a word when the numbers are old, and the key of the demo's link.
// Every page works without it.
"use strict";

(() => {
  const stale = document.getElementById("stale");
  let told = Date.now();

  /** Says that what is shown is old, and since when. */
  const lost = () => {
    const at = new Date(told).toISOString().slice(11, 19);
    stale.textContent = `The server does not answer. This is from ${at} UTC.`;
    stale.hidden = false;
  };

  document.addEventListener("htmx:before:request", (event) => {
    if (document.hidden) {
      event.preventDefault(); // Nobody looks.
    }
  });
  document.addEventListener("htmx:before:response", (event) => {
    const { status, raw } = event.detail.ctx.response;
    if (raw.headers.has("HX-Redirect")) {
      return;
    }
    if (status >= 400) {
      event.preventDefault();
      lost();
      return;
    }
    told = Date.now();
    stale.hidden = true;
  });
  document.addEventListener("htmx:error", lost);

  // The demo's link has the key behind the #, which no server and no log sees.
  const key = document.getElementById("key");
  if (key && location.hash.length > 1) {
    key.value = decodeURIComponent(location.hash.slice(1));
    history.replaceState(null, "", location.pathname + location.search);
    key.form.querySelector("button").focus();
  }

  const charts = [];
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const shown = {
    rate: (value) => (value == null ? "–" : value > 0 && value < 10 ? value.toFixed(1) : Math.round(value).toLocaleString("en").replaceAll(",", "\u202f")),
    ms: (value) => (value == null ? "–" : value < 1000 ? `${Math.round(value)} ms` : `${(value / 1000).toFixed(1)} s`),
  };

  const clock = (at, exact) => new Date(at * 1000).toISOString().slice(11, exact ? 19 : 16);

  /** Makes the chart of an element, in the colours of the moment. */
  function draw(place, data) {
    const names = place.dataset.names.split(",");
    const columns = place.dataset.columns.split(" ");
    const colours = ["--accent", "--amber", "--accent-2"].map(colour);
    const words = shown[place.dataset.unit];
    const axis = { stroke: colour("--soft"), grid: { stroke: colour("--faint"), width: 1 }, ticks: { show: false }, font: "11px system-ui" };
    const options = {
      width: place.clientWidth,
      height: 150,
      tzDate: (at) => uPlot.tzDate(new Date(at * 1000), "Etc/UTC"),
      cursor: { y: false, points: { size: 5 } },
      legend: { show: true },
      scales: { y: { range: (_, low, high) => [0, Math.max(high ?? 0, 1) * 1.1] } },
      axes: [
        { ...axis, size: 26, space: 60, values: (chart, all) => all.map((at) => clock(at, chart.scales.x.max - chart.scales.x.min < 600)) },
        { ...axis, size: 52, values: (_, all) => all.map(words) },
      ],
      series: [
        { label: "UTC", value: (_, at) => (at == null ? "–" : clock(at, true)) },
        ...columns.map((_, index) => ({
          label: names[index],
          stroke: colours[index],
          width: 1.5,
          fill: columns.length === 1 ? `${colours[index]}22` : undefined,
          spanGaps: true,
          points: { show: place.dataset.unit === "ms", size: 4 },
          value: (_, value) => words(value),
        })),
      ],
    };
    place.replaceChildren();
    const chart = new uPlot(options, pick(place, data), place);
    charts.push({ place, chart });
  }

  const pick = (place, data) => [data.at, ...place.dataset.columns.split(" ").map((name) => data[name])];

  async function samples() {
    const answer = await fetch("/console/samples", { headers: { Accept: "application/json" } });
    if (!answer.ok) {
      throw new Error(`HTTP ${answer.status}`);
    }
    return answer.json();
  }

  const places = [...document.querySelectorAll(".chart")];
  if (places.length > 0 && window.uPlot) {
    let last;
    const again = () => {
      charts.splice(0).forEach(({ chart }) => chart.destroy());
      places.forEach((place) => draw(place, last));
    };
    const fresh = async () => {
      if (document.hidden && last) {
        return;
      }
      try {
        const isFirst = last === undefined;
        last = await samples();
        isFirst ? again() : charts.forEach(({ place, chart }) => chart.setData(pick(place, last)));
      } catch {
        // The live part of the page says so.
      }
    };
    fresh();
    setInterval(fresh, 10_000);
    new ResizeObserver(() => {
      charts.forEach(({ place, chart }) => chart.setSize({ width: place.clientWidth, height: 150 }));
    }).observe(places[0]);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => last && again());
  }
})();
