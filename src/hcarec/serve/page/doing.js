// How the service is doing: asked every two seconds, only while the page can be seen.

import { get } from "./api.js";
import { at, draw, make } from "./dom.js";
import { bytes, count, milliseconds, span } from "./words.js";

const EVERY = 2000;
const KEPT = 60;

const rates = [];
let timer = null;

/** Watch the service; `onAnswer(status)` hears each answer, `onGone(problem)` that none came. */
export function watch({ onAnswer, onGone }) {
  async function look() {
    clearTimeout(timer);
    if (document.hidden) return;
    try {
      const { answer } = await get("v1/status");
      show(answer);
      onAnswer(answer);
    } catch (problem) {
      if (problem.status === 0) {
        at("pulse").dataset.state = "gone";
        at("pulse-text").textContent = "no answer";
        onGone(problem);
      }
    }
    clearTimeout(timer);
    timer = setTimeout(look, EVERY);
  }
  document.addEventListener("visibilitychange", look);
  look();
}

function show(now) {
  rates.push(now.requests_per_second ?? 0);
  rates.splice(0, rates.length - KEPT);
  const { p50 = null, p90 = null, p99 = null } = now.latency_ms ?? {};
  const ms = (value) => (value === null ? "\u2013" : milliseconds(value));
  at("pulse").dataset.state = "well";
  at("pulse-text").textContent = p50 === null ? "no requests yet" : `${rate(now.requests_per_second)} requests/s, half within ${ms(p50)}`;
  const figures = [
    ["requests a second", rate(now.requests_per_second ?? 0), sparkline(rates)],
    ["half of them within", ms(p50)],
    ["90% within", ms(p90)],
    ["99% within", ms(p99)],
    ["users", count(now.users)],
    ["events", count(now.events)],
    ["store", bytes(now.store_bytes ?? 0)],
    ["users in memory", count(now.users_in_memory ?? 0)],
    ["waiting", count((now.waiting_events ?? 0) + (now.waiting_asks ?? 0))],
    ["refused, failed", `${count(now.refused ?? 0)}, ${count(now.errors ?? 0)}`],
    ["model", now.model],
    ["running for", span(now.uptime_s ?? 0)],
  ];
  at("figures").replaceChildren(
    ...figures.map(([label, value, drawing]) =>
      make(
        "div",
        { class: drawing ? "figure-box wide" : "figure-box" },
        make("dt", { text: label }),
        make("dd", {}, make("span", { text: value }), drawing),
      ),
    ),
  );
}

const rate = (value) => (value < 10 ? value.toFixed(1) : count(Math.round(value)));

function sparkline(values) {
  const most = Math.max(...values, 1);
  const points = values.map((value, n) => `${((n + KEPT - values.length) * 120) / (KEPT - 1)},${(29 - (27 * value) / most).toFixed(1)}`);
  return draw(
    "svg",
    { class: "sparkline", viewBox: "0 0 120 30", preserveAspectRatio: "none", "aria-hidden": "true" },
    draw("polyline", { points: points.join(" ") }),
  );
}
