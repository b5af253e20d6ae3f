// How a person wants the charts drawn; kept while the window lives, so that every run is seen the same way.

import type { Axis } from "../api/bindings/Axis";

export interface ChartView {
  axis: Axis;
  log: boolean;
  smoothing: number;
}

export const SMOOTHING = [0, 0.5, 0.8, 0.9, 0.95, 0.99] as const;

export const keptView = $state<{ view: ChartView }>({ view: { axis: "step", log: false, smoothing: 0.9 } });
