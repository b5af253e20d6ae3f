//! One decoder layer, forward and backward:
//! x_mid = x + attention(norm(x)), out = x_mid + mlp(norm(x_mid)), as in Llama (Touvron et al. 2023).
//!
//! Shapes: N = B × T rows of D elements; q_NHE, k_NKE, v_NKE; F elements in the feed-forward part.

use super::parameter::Parameter;
use super::pass::{Pass, Sizes};
use super::projection::{Projection, Saved};
use super::rows::Rows;
use super::work::Work;
use crate::arena::Arena;
use kernels::attention::{self, Gradients, Inputs, Outputs};
use kernels::{Buffer, elementwise, rms_norm, rope, swiglu};
use protocol::Outcome;
use protocol::facts::{ModelConfig, PROJECTIONS};
use protocol::plan::Method;

/// Places of the projections in `Layer::projections` and `Kept::low`, as in `facts::PROJECTIONS`.
pub const Q: usize = 0;
const K: usize = 1;
const V: usize = 2;
const O: usize = 3;
const GATE: usize = 4;
const UP: usize = 5;
const DOWN: usize = 6;

/// How far down the backward pass must go in a layer: to the last thing that moves, or through to the layer's input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reach {
    /// To down_proj.
    Down,
    /// To gate_proj and up_proj.
    GateUp,
    /// To o_proj.
    Output,
    /// To q_proj, k_proj and v_proj.
    Qkv,
    /// To the input: something below moves.
    Input,
}

impl Reach {
    /// Of layer `layer`: only in the first layer, and only where the embedding does not move, there is nothing below.
    pub fn of(method: &Method, layer: u32) -> Reach {
        match method {
            Method::Lora { targets, .. } if layer == 0 => {
                let is = |names: &[&str]| targets.iter().any(|t| names.contains(&t.as_str()));
                if is(&PROJECTIONS[Q..O]) {
                    Reach::Qkv
                } else if is(&PROJECTIONS[O..GATE]) {
                    Reach::Output
                } else if is(&PROJECTIONS[GATE..DOWN]) {
                    Reach::GateUp
                } else {
                    Reach::Down
                }
            }
            _ => Reach::Input,
        }
    }
}

/// A layer's parameters.
pub struct Layer {
    pub(super) attention_norm: Parameter,
    pub(super) mlp_norm: Parameter,
    /// In the order of `facts::PROJECTIONS`.
    pub(super) projections: [Projection; 7],
    pub(super) reach: Reach,
}

/// What a layer's forward pass leaves for its backward pass.
#[derive(Clone)]
pub struct Kept {
    attention_norm: Rows,
    attention_rstd: Rows,
    pub(crate) q: Rows,
    pub(crate) k: Rows,
    pub(crate) v: Rows,
    pub(crate) attention: Rows,
    attention_lse: Rows,
    x_mid: Rows,
    mlp_norm: Rows,
    mlp_rstd: Rows,
    gate: Rows,
    up: Rows,
    act: Rows,
    low: [Option<Rows>; 7],
}

impl Kept {
    /// Takes the buffers `<prefix>.…` for `rows` rows.
    pub fn take(arena: &mut Arena, prefix: &str, rows: usize, config: &ModelConfig, method: &Method) -> Outcome<Kept> {
        let sizes = Sizes::of(config);
        let mut take = |name: &str, width: usize| Rows::take(arena, &format!("{prefix}.{name}"), rows, width);
        let mut low = [const { None }; 7];
        if let Method::Lora { rank, targets, .. } = method {
            for (slot, p) in low.iter_mut().zip(PROJECTIONS).filter(|(_, p)| targets.iter().any(|t| t == p)) {
                *slot = Some(take(&format!("{p}.low"), *rank as usize)?);
            }
        }
        Ok(Kept {
            attention_norm: take("attention_norm", sizes.hidden)?,
            attention_rstd: take("attention_rstd", 1)?,
            q: take("q", sizes.q())?,
            k: take("k", sizes.kv())?,
            v: take("v", sizes.kv())?,
            attention: take("attention", sizes.q())?,
            attention_lse: take("attention_lse", sizes.heads)?,
            x_mid: take("x_mid", sizes.hidden)?,
            mlp_norm: take("mlp_norm", sizes.hidden)?,
            mlp_rstd: take("mlp_rstd", 1)?,
            gate: take("gate", sizes.intermediate)?,
            up: take("up", sizes.intermediate)?,
            act: take("act", sizes.intermediate)?,
            low,
        })
    }
}

/// Attention over the rows of a micro-batch, each token seeing its own segment up to itself.
pub fn attend(pass: &Pass<'_>, kept: &Kept) {
    let n = pass.places();
    let (q, k, v) = (kept.q.first(n), kept.k.first(n), kept.v.first(n));
    let to = Outputs { out: &kept.attention.first(n), lse: &kept.attention_lse.first(n) };
    let from = Inputs { q: &q, k: &k, v: &v, segment_start: &pass.segment_starts };
    attention::forward(pass.stream, to, from, pass.attention_shape());
}

impl Layer {
    /// Everything but the last sum: from `x_ND` to the feed-forward activation in `kept`. `attend` turns q, k, v into
    /// the attention's result.
    pub fn inner(&self, pass: &Pass<'_>, x: &Buffer, kept: &Kept, attend: impl FnOnce(&Pass<'_>, &Kept)) {
        let (n, s, eps) = (pass.places(), pass.stream, pass.sizes.eps);
        let norm = kept.attention_norm.first(n);
        rms_norm::forward(s, &norm, &kept.attention_rstd.first(n), x, &self.attention_norm.weight, eps);
        for (at, y) in [(Q, &kept.q), (K, &kept.k), (V, &kept.v)] {
            self.project(pass, at, &y.first(n), &norm, kept, false);
        }
        for turned in [&kept.q, &kept.k] {
            rope::forward(s, &turned.first(n), &pass.positions, &pass.inv_freq, pass.rotary_scaling);
        }
        attend(pass, kept);
        let x_mid = kept.x_mid.first(n);
        elementwise::copy(s, &x_mid, x);
        self.project(pass, O, &x_mid, &kept.attention.first(n), kept, true);
        let norm = kept.mlp_norm.first(n);
        rms_norm::forward(s, &norm, &kept.mlp_rstd.first(n), &x_mid, &self.mlp_norm.weight, eps);
        let (gate, up) = (kept.gate.first(n), kept.up.first(n));
        self.project(pass, GATE, &gate, &norm, kept, false);
        self.project(pass, UP, &up, &norm, kept, false);
        swiglu::forward(s, &kept.act.first(n), &gate, &up);
    }

    /// The last sum: `out_ND = x_mid + down(act)`.
    pub fn outer(&self, pass: &Pass<'_>, out: &Buffer, kept: &Kept) {
        let n = pass.places();
        elementwise::copy(pass.stream, out, &kept.x_mid.first(n));
        self.project(pass, DOWN, out, &kept.act.first(n), kept, true);
    }

    /// Fills `kept` again from `x_ND`, all but the layer's output, which the backward pass does not need.
    pub fn again(&self, pass: &Pass<'_>, x: &Buffer, kept: &Kept) {
        self.inner(pass, x, kept, attend);
        let act = kept.act.first(pass.places());
        self.projections[DOWN].lower(pass, Saved { x: &act, low: kept.low[DOWN].as_ref() });
    }

    /// Turns `work.dx`, the gradient of the layer's output, into that of its input (as far as anything below wants it)
    /// and adds to the gradients of what moves. `kept` is used up.
    pub fn backward(&self, pass: &Pass<'_>, x: &Buffer, kept: &Kept, work: &Work) {
        if self.mlp_backward(pass, kept, work) {
            self.attention_backward(pass, x, kept, work);
        }
    }

    /// False where nothing below the feed-forward part moves.
    fn mlp_backward(&self, pass: &Pass<'_>, kept: &Kept, work: &Work) -> bool {
        let (n, s) = (pass.places(), pass.stream);
        let (dx, dact, dnorm) = (work.dx.first(n), work.dact.first(n), work.dnorm.first(n));
        self.project_backward(pass, DOWN, (self.reach > Reach::Down).then_some((&dact, false)), &dx, kept, work);
        if self.reach == Reach::Down {
            return false;
        }
        // From here on gate and up hold their own gradients.
        let (dgate, dup) = (kept.gate.first(n), kept.up.first(n));
        swiglu::backward(s, &dgate, &dup, &dact);
        let wanted = self.reach > Reach::GateUp;
        self.project_backward(pass, GATE, wanted.then_some((&dnorm, false)), &dgate, kept, work);
        self.project_backward(pass, UP, wanted.then_some((&dnorm, true)), &dup, kept, work);
        if wanted {
            let (x_mid, rstd) = (kept.x_mid.first(n), kept.mlp_rstd.first(n));
            let saved = rms_norm::Saved { x: &x_mid, weight: &self.mlp_norm.weight, rstd: &rstd };
            rms_norm::backward(s, &dx, self.mlp_norm.gradient.as_ref(), saved, &dnorm, true);
        }
        wanted
    }

    fn attention_backward(&self, pass: &Pass<'_>, x: &Buffer, kept: &Kept, work: &Work) {
        let (n, s) = (pass.places(), pass.stream);
        let (dx, dattention, dnorm) = (work.dx.first(n), work.dattention.first(n), work.dnorm.first(n));
        self.project_backward(pass, O, (self.reach > Reach::Output).then_some((&dattention, false)), &dx, kept, work);
        if self.reach == Reach::Output {
            return;
        }
        let (dq, dk, dv) = (work.dq.first(n), work.dk.first(n), work.dv.first(n));
        attend_backward(pass, [&dq, &dk, &dv], &dattention, kept);
        for turned in [&dq, &dk] {
            rope::backward(s, turned, &pass.positions, &pass.inv_freq, pass.rotary_scaling);
        }
        let wanted = self.reach > Reach::Qkv;
        for (at, dy) in [(Q, &dq), (K, &dk), (V, &dv)] {
            self.project_backward(pass, at, wanted.then_some((&dnorm, at != Q)), dy, kept, work);
        }
        if wanted {
            let rstd = kept.attention_rstd.first(n);
            let saved = rms_norm::Saved { x, weight: &self.attention_norm.weight, rstd: &rstd };
            rms_norm::backward(s, &dx, self.attention_norm.gradient.as_ref(), saved, &dnorm, true);
        }
    }

    fn project(&self, pass: &Pass<'_>, at: usize, y: &Buffer, x: &Buffer, kept: &Kept, add: bool) {
        self.projections[at].forward(pass, y, Saved { x, low: kept.low[at].as_ref() }, add);
    }

    fn project_backward(
        &self,
        pass: &Pass<'_>,
        at: usize,
        dx: Option<(&Buffer, bool)>,
        dy: &Buffer,
        kept: &Kept,
        work: &Work,
    ) {
        let x = match at {
            Q | K | V => &kept.attention_norm,
            O => &kept.attention,
            GATE | UP => &kept.mlp_norm,
            _ => &kept.act,
        };
        let saved = Saved { x: &x.first(pass.places()), low: kept.low[at].as_ref() };
        self.projections[at].backward(pass, dx, dy, saved, &work.dlow);
    }
}

fn attend_backward(pass: &Pass<'_>, [dq, dk, dv]: [&Buffer; 3], dout: &Buffer, kept: &Kept) {
    let n = pass.places();
    let (q, k, v) = (kept.q.first(n), kept.k.first(n), kept.v.first(n));
    let from = Inputs { q: &q, k: &k, v: &v, segment_start: &pass.segment_starts };
    let saved = Outputs { out: &kept.attention.first(n), lse: &kept.attention_lse.first(n) };
    attention::backward(pass.stream, Gradients { dq, dk, dv }, from, saved, dout, pass.attention_shape());
}
