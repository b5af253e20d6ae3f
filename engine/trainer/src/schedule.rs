//! The learning rate of each step, by the formulas of `transformers.get_scheduler`: a linear warm-up from 0, then a constant,
//! a straight line to 0 or half a cosine to 0.
//!
//! Not here: choosing warm-up and length (`plan`).

use protocol::job::ScheduleKind;
use protocol::plan::PlannedSchedule;
use std::f64::consts::PI;

/// Rate of step `step` (from 0): `peak` times the schedule's factor.
pub fn rate(schedule: &PlannedSchedule, peak: f64, step: u64) -> f64 {
    peak * factor(schedule, step)
}

/// Between 0 and 1: `step` / warm-up while warming up, then the shape over what is left.
fn factor(schedule: &PlannedSchedule, step: u64) -> f64 {
    let warmup = schedule.warmup_steps;
    if step < warmup {
        return step as f64 / warmup as f64;
    }
    let whole = schedule.total_steps.saturating_sub(warmup).max(1) as f64;
    match schedule.kind {
        ScheduleKind::Constant => 1.0,
        ScheduleKind::Linear => schedule.total_steps.saturating_sub(step) as f64 / whole,
        ScheduleKind::Cosine => {
            let progress = (step - warmup) as f64 / whole;
            (0.5 * (1.0 + (PI * progress).cos())).max(0.0)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::golden;
    use serde_json::Value;

    #[test]
    fn rates_are_those_of_transformers() {
        let text = std::fs::read(golden("optim/lr_schedules.json")).unwrap();
        let all: Value = serde_json::from_slice(&text).unwrap();
        let names = ["linear", "linear_nowarm", "cosine", "cosine_nowarm", "constant", "constant_with_warmup"];
        for name in names {
            let s = &all["schedules"][name];
            let kind = match s["type"].as_str().unwrap() {
                "linear" => ScheduleKind::Linear,
                "cosine" => ScheduleKind::Cosine,
                _ => ScheduleKind::Constant,
            };
            let planned = schedule(kind, s["warmup"].as_u64().unwrap(), s["total"].as_u64().unwrap());
            for (step, expected) in s["lr"].as_array().unwrap().iter().enumerate() {
                let (expected, found) =
                    (expected.as_f64().unwrap(), rate(&planned, s["base_lr"].as_f64().unwrap(), step as u64));
                assert!((found - expected).abs() <= 1e-9 * expected, "{name}, step {step}: {found}, not {expected}");
            }
        }
    }

    fn schedule(kind: ScheduleKind, warmup_steps: u64, total_steps: u64) -> PlannedSchedule {
        PlannedSchedule { kind, warmup_steps, total_steps }
    }

    #[test]
    fn the_first_warm_up_step_has_rate_zero_and_the_last_step_almost_zero() {
        let s = schedule(ScheduleKind::Cosine, 10, 100);
        assert_eq!((rate(&s, 1e-3, 0), rate(&s, 1e-3, 10), rate(&s, 1e-3, 100)), (0.0, 1e-3, 0.0));
        assert!(rate(&s, 1e-3, 99) < 1e-6);
    }

    #[test]
    fn a_warm_up_longer_than_the_run_divides_by_nothing() {
        for kind in [ScheduleKind::Constant, ScheduleKind::Linear, ScheduleKind::Cosine] {
            let s = schedule(kind, 10, 10);
            assert!((0..30).all(|step| rate(&s, 1.0, step).is_finite()));
        }
    }
}
