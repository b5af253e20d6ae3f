//! A linear layer, with or without a bias and a low-rank adapter (LoRA, Hu et al. 2021):
//! y_NO = x_NI W_OIᵀ + bias_O + (alpha / rank) · dropout(x) A_RIᵀ B_ORᵀ.
//!
//! Shapes: N rows, I inputs, O outputs, R rank.

use super::parameter::Parameter;
use super::pass::Pass;
use super::rows::Rows;
use kernels::dropout::{self, Dropout};
use kernels::matmul::{self, Shape};
use kernels::random::Draw;
use kernels::{Buffer, bias};

/// The layer's parameters.
pub struct Projection {
    /// W, [out, in].
    pub weight: Parameter,
    /// [out], where it has one.
    pub bias: Option<Parameter>,
    /// The low-rank update, where it has one.
    pub adapter: Option<Adapter>,
}

/// The low-rank update of a projection.
pub struct Adapter {
    /// A, [rank, in].
    pub a: Parameter,
    /// B, [out, rank].
    pub b: Parameter,
    /// alpha / rank.
    pub scale: f32,
    /// Rate of dropout on the input while training.
    pub dropout: f32,
    /// Tells this dropout from those of other projections.
    pub purpose: u32,
}

/// What the forward pass leaves for the backward pass, and room to work in.
#[derive(Clone, Copy)]
pub struct Saved<'a> {
    /// Input, x_NI.
    pub x: &'a Buffer,
    /// dropout(x) Aᵀ, of R elements a row; there is one where there is an adapter.
    pub low: Option<&'a Rows>,
}

impl Projection {
    /// `y = x Wᵀ + bias + …`, or `y += x Wᵀ + bias + …` where `add`.
    pub fn forward(&self, pass: &Pass<'_>, y: &Buffer, saved: Saved<'_>, add: bool) {
        let [o, i] = self.sizes();
        let n = pass.places();
        matmul::nt(pass.stream, y, saved.x, &self.weight.weight, Shape { m: n, n: o, k: i }, 1.0, beta(add));
        if let Some(bias) = &self.bias {
            bias::forward(pass.stream, y, &bias.weight);
        }
        if let (Some(adapter), Some(low)) = (&self.adapter, saved.low) {
            self.lower(pass, saved);
            let shape = Shape { m: n, n: o, k: adapter.rank() };
            matmul::nt(pass.stream, y, &low.first(n), &adapter.b.weight, shape, adapter.scale, 1.0);
        }
    }

    /// The part of the forward pass that the backward pass needs: dropout(x) Aᵀ, where there is an adapter.
    pub fn lower(&self, pass: &Pass<'_>, saved: Saved<'_>) {
        if let (Some(adapter), Some(low)) = (&self.adapter, saved.low) {
            let (n, [_, i]) = (pass.places(), self.sizes());
            let input = adapter.input(pass, saved.x);
            let shape = Shape { m: n, n: adapter.rank(), k: i };
            matmul::nt(pass.stream, &low.first(n), &input, &adapter.a.weight, shape, 1.0, 0.0);
        }
    }

    /// Adds to the gradients of what moves; writes (or adds to, where the flag is set) the gradient of the input, where
    /// something below wants it.
    pub fn backward(
        &self,
        pass: &Pass<'_>,
        dx: Option<(&Buffer, bool)>,
        dy: &Buffer,
        saved: Saved<'_>,
        dlow: &Option<Rows>,
    ) {
        let [o, i] = self.sizes();
        let n = pass.places();
        if let Some(dw) = &self.weight.gradient {
            matmul::tn(pass.stream, dw, dy, saved.x, Shape { m: o, n: i, k: n }, 1.0, 1.0);
        }
        if let Some(dbias) = self.bias.as_ref().and_then(|bias| bias.gradient.as_ref()) {
            bias::backward(pass.stream, dbias, dy);
        }
        if let Some((dx, add)) = dx {
            matmul::nn(pass.stream, dx, dy, &self.weight.weight, Shape { m: n, n: i, k: o }, 1.0, beta(add));
        }
        if let (Some(adapter), Some(low), Some(dlow)) = (&self.adapter, saved.low, dlow) {
            let (low, dlow) = (low.first(n), dlow.first(n));
            adapter.backward(pass, dx.map(|(dx, _)| dx), dy, [saved.x, &low, &dlow]);
        }
    }

    /// [out, in].
    fn sizes(&self) -> [usize; 2] {
        matrix(&self.weight)
    }
}

impl Adapter {
    fn rank(&self) -> usize {
        matrix(&self.a)[0]
    }

    /// The input as A sees it: x itself, or x with some of its elements dropped.
    fn input(&self, pass: &Pass<'_>, x: &Buffer) -> Buffer {
        let Some((numbers, dropped)) = self.dropout(pass) else { return x.clone() };
        dropout::forward(pass.stream, &dropped, x, numbers);
        dropped
    }

    /// The numbers of this dropout and room for one input; `None` where nothing is dropped.
    fn dropout(&self, pass: &Pass<'_>) -> Option<(Dropout, Buffer)> {
        let (draw, dropped) = (pass.dropout?, pass.dropped?);
        let width = matrix(&self.a)[1];
        let draw = Draw { seed: draw.seed, purpose: self.purpose, step: draw.step };
        let first_sample = pass.first_sample;
        let numbers = Dropout { rate: self.dropout, draw, first_sample, length: pass.length, width };
        (self.dropout > 0.0).then(|| (numbers, dropped.narrow(pass.places(), width)))
    }

    /// With u = dropout(x), low = u Aᵀ and s the scale: dlow = s · dy B, dB += s · dyᵀ low, dA += dlowᵀ u,
    /// dx += dropout'(dlow A).
    fn backward(&self, pass: &Pass<'_>, dx: Option<&Buffer>, dy: &Buffer, [x, low, dlow]: [&Buffer; 3]) {
        let ([r, i], [o, _]) = (matrix(&self.a), matrix(&self.b));
        let n = pass.places();
        let s = pass.stream;
        matmul::nn(s, dlow, dy, &self.b.weight, Shape { m: n, n: r, k: o }, self.scale, 0.0);
        if let Some(db) = &self.b.gradient {
            matmul::tn(s, db, dy, low, Shape { m: o, n: r, k: n }, self.scale, 1.0);
        }
        if let Some(da) = &self.a.gradient {
            matmul::tn(s, da, dlow, &self.input(pass, x), Shape { m: r, n: i, k: n }, 1.0, 1.0);
        }
        if let Some(dx) = dx {
            self.input_gradient(pass, dx, dlow, Shape { m: n, n: i, k: r });
        }
    }

    fn input_gradient(&self, pass: &Pass<'_>, dx: &Buffer, dlow: &Buffer, shape: Shape) {
        match self.dropout(pass) {
            None => matmul::nn(pass.stream, dx, dlow, &self.a.weight, shape, 1.0, 1.0),
            Some((numbers, du)) => {
                matmul::nn(pass.stream, &du, dlow, &self.a.weight, shape, 1.0, 0.0);
                dropout::backward(pass.stream, dx, &du, numbers);
            }
        }
    }
}

/// [rows, columns] of a matrix parameter.
fn matrix(parameter: &Parameter) -> [usize; 2] {
    match parameter.tensor.shape[..] {
        [rows, columns] => [rows as usize, columns as usize],
        _ => [0, 0],
    }
}

/// What multiplies the old result.
fn beta(add: bool) -> f32 {
    if add { 1.0 } else { 0.0 }
}
