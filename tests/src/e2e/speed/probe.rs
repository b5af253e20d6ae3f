//! Measures in the page: how long until something is on the screen, and the gaps between frames.

use crate::e2e::desk::Desk;
use std::time::Duration;

/// Openings of each place, by each way.
const ROUNDS: usize = 6;

/// The page of a desk, with the scripts of `probe.js` in it.
pub struct Probe<'a> {
    /// The desk.
    pub desk: &'a Desk,
}

impl<'a> Probe<'a> {
    /// Brings the scripts into the page.
    pub async fn new(desk: &'a Desk) -> Probe<'a> {
        desk.page().set_script_timeout(Duration::from_secs(120)).await.unwrap();
        desk.script(include_str!("probe.js")).await;
        Probe { desk }
    }

    /// Milliseconds from an act to the first frame that shows its effect.
    pub async fn until(&self, act: &str, ready: &str) -> f64 {
        let text = format!(
            "with (window.probe) {{ timed(async () => {{ {act} }}, () => {{ return {ready}; }})\
             .then(done, (e) => done(String(e))); }}"
        );
        let answer = self.desk.wait_script(&text).await;
        answer.as_f64().unwrap_or_else(|| panic!("{act} never led to {ready}: {answer}"))
    }

    /// The same for several acts, one after the other.
    pub async fn each(&self, acts: &[String], ready: &str) -> Vec<f64> {
        let mut times = Vec::new();
        for act in acts {
            times.push(self.until(act, ready).await);
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        times
    }

    /// A place is opened by each of the acts and left again, some times.
    pub async fn opened(&self, acts: &[String], ready: &str, leave: &str) -> Vec<f64> {
        let mut times = Vec::new();
        for _ in 0..ROUNDS {
            for act in acts {
                self.until(leave, &format!("!({ready})")).await;
                // What the page asked for on its way is answered before the next act.
                tokio::time::sleep(Duration::from_millis(700)).await;
                times.push(self.until(act, ready).await);
            }
        }
        times
    }

    /// Gaps between frames, in milliseconds; `each` runs in every frame, `n` counting them.
    pub async fn frames(&self, seconds: u64, each: &str) -> Vec<f64> {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let text = format!(
            "with (window.probe) {{ frames({seconds}, (n) => {{ {each} }}).then(done, (e) => done(String(e))); }}"
        );
        let answer = self.desk.wait_script(&text).await;
        let gaps: Vec<f64> =
            answer.as_array().map(|all| all.iter().filter_map(|gap| gap.as_f64()).collect()).unwrap_or_default();
        assert!(gaps.len() > 10, "the page drew no frames: {answer}");
        gaps
    }
}
