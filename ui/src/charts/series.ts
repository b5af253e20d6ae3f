// The four plots of a run: what each draws, in which colour, with which ticks.

import type uPlot from "uplot";
import type { EvaluationPoint } from "../api/bindings/EvaluationPoint";
import { token } from "./colours";

const none: uPlot.Series.Points = { show: false };
/** A first step alone makes no line: it is a dot. */
const first: uPlot.Series.Points = { show: (u) => u.data[0].length < 2, size: 6 };

/** Columns of the loss plot: largest, least, raw, smoothed. */
export function lossSeries(): uPlot.Series[] {
  return [
    { stroke: "transparent", width: 0, points: none },
    { stroke: "transparent", width: 0, points: none },
    { stroke: () => token("--c-raw"), width: 1, points: none },
    { stroke: () => token("--c-blue"), width: 2, points: first },
  ];
}

/** Between the largest and the least loss of a stretch. */
export function lossBand(): uPlot.Band[] {
  return [{ series: [1, 2], fill: () => token("--c-raw") }];
}

export function lineSeries(colour: string): uPlot.Series[] {
  return [{ stroke: () => token(colour), width: 1.5, points: first }];
}

/** Evaluations lie between steps, so they are drawn as they are and not as a column. */
export function drawEvaluations(u: uPlot, points: EvaluationPoint[]): void {
  const { ctx } = u;
  const ratio = devicePixelRatio || 1;
  const { left, top, width, height } = u.bbox;
  ctx.save();
  ctx.beginPath();
  ctx.rect(left, top - 4 * ratio, width + 4 * ratio, height + 8 * ratio);
  ctx.clip();
  ctx.fillStyle = token("--c-vermillion");
  ctx.strokeStyle = token("--bg");
  ctx.lineWidth = 1.5 * ratio;
  let before = -Infinity;
  for (const point of points) {
    if (point.loss === null) continue;
    const x = u.valToPos(point.x, "x", true);
    const y = u.valToPos(point.loss, "y", true);
    // Evaluations that would lie on each other are one dot; the newest is always drawn.
    if (x < left - 4 || x > left + width + 4 || (x - before < 3 * ratio && point !== points.at(-1))) continue;
    before = x;
    ctx.beginPath();
    ctx.arc(x, y, 3.5 * ratio, 0, Math.PI * 2);
    ctx.fill();
    ctx.stroke();
  }
  ctx.restore();
}
