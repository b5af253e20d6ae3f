//! What the backward pass works in: one set of buffers that all layers share.

use super::pass::Sizes;
use super::rows::Rows;
use crate::arena::Arena;
use protocol::Outcome;
use protocol::facts::ModelConfig;
use protocol::plan::Method;

/// Short-lived gradients of a micro-batch.
pub struct Work {
    /// Of the residual stream [N, D].
    pub dx: Rows,
    /// Of a norm's output [N, D].
    pub dnorm: Rows,
    /// Of queries [N, H × E].
    pub dq: Rows,
    /// Of keys [N, K × E].
    pub dk: Rows,
    /// Of values [N, K × E].
    pub dv: Rows,
    /// Of the attention's result [N, H × E].
    pub dattention: Rows,
    /// Of the feed-forward activation [N, F].
    pub dact: Rows,
    /// Of an adapter's low-rank input [N, R].
    pub dlow: Option<Rows>,
    /// An adapter's input after dropout, or its gradient [N, widest input].
    pub dropped: Option<Rows>,
}

impl Work {
    /// Takes the buffers `back.…` for `rows` rows.
    pub fn take(arena: &mut Arena, rows: usize, config: &ModelConfig, method: &Method) -> Outcome<Work> {
        let sizes = Sizes::of(config);
        let mut take = |name: &str, width: usize| Rows::take(arena, &format!("back.{name}"), rows, width);
        let (mut dlow, mut dropped) = (None, None);
        if let Method::Lora { rank, dropout, targets, .. } = method {
            dlow = Some(take("dlow", *rank as usize)?);
            if *dropout > 0.0 {
                let widest = targets.iter().filter_map(|t| config.projection(t)).map(|[_, input]| input).max();
                dropped = Some(take("dropped", widest.unwrap_or(0) as usize)?);
            }
        }
        Ok(Work {
            dx: take("dx", sizes.hidden)?,
            dnorm: take("dnorm", sizes.hidden)?,
            dq: take("dq", sizes.q())?,
            dk: take("dk", sizes.kv())?,
            dv: take("dv", sizes.kv())?,
            dattention: take("dattention", sizes.q())?,
            dact: take("dact", sizes.intermediate)?,
            dlow,
            dropped,
        })
    }
}
