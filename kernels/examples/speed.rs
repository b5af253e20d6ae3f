//! What each operation reaches on this machine: `cargo run --release -p kernels --example speed [threads]`.

use kernels::attention::{self, Gradients, Inputs, Outputs};
use kernels::dropout::{self, Dropout};
use kernels::matmul::{Orientation, Shape};
use kernels::random::{Draw, normal};
use kernels::{AllocError, Buffer, DType, Device, Stream, adamw, cross_entropy, elementwise, measure};
use kernels::{reduce, rms_norm, rope, swiglu};

/// Runs of each measurement; the best counts.
const REPEATS: usize = 10;

fn main() -> Result<(), AllocError> {
    let threads = std::env::args().nth(1).and_then(|n| n.parse().ok());
    let threads = threads.or_else(|| std::thread::available_parallelism().ok().map(usize::from)).unwrap_or(1);
    let bench = Bench { stream: Device::cpu(threads).stream() };
    println!("{threads} threads");
    bench.products()?;
    bench.small_operations()?;
    bench.attention(2, 1024, [9, 3, 64])?;
    bench.attention(4, 512, [32, 8, 64])?;
    bench.loss(512, 49_152)
}

struct Bench {
    stream: Stream,
}

impl Bench {
    fn of(&self, len: usize) -> Result<Buffer, AllocError> {
        let buffer = self.stream.device().alloc(len, DType::F32)?;
        normal(&self.stream, &buffer, 0.0, 1.0, Draw { seed: 1, purpose: len as u32, step: 0 });
        Ok(buffer)
    }

    fn zeros(&self, len: usize) -> Result<Buffer, AllocError> {
        self.stream.device().alloc(len, DType::U32)
    }

    /// Prints milliseconds, and how many billions of units (operations or bytes) a second that is.
    fn report(&self, name: &str, units: f64, unit: &str, work: impl FnMut()) {
        let seconds = measure::best(&self.stream, REPEATS, work);
        println!("{name:44} {:9.3} ms {:8.1} {unit}", seconds * 1e3, units / seconds / 1e9);
    }

    fn products(&self) -> Result<(), AllocError> {
        for [m, n, k] in [[1024, 576, 576], [1024, 1536, 576], [1024, 576, 1536], [1024, 16, 576], [512, 49_152, 576]] {
            let reach = |orientation, [m, n, k]: [usize; 3]| {
                measure::gemm(self.stream.device(), orientation, Shape { m, n, k }, REPEATS)
            };
            let numbers = [
                reach(Orientation::Nt, [m, n, k])?,
                reach(Orientation::Nn, [m, k, n])?,
                reach(Orientation::Tn, [n, k, m])?,
            ];
            println!("layer {m} x {n} x {k}: forward NT, input NN, weight TN: {numbers:6.1?} GFLOP/s");
        }
        let reach = measure::gemm(self.stream.device(), Orientation::Nt, Shape { m: 1, n: 49_152, k: 576 }, REPEATS)?;
        println!("one row 1 x 49152 x 576: {:.1} GB/s", reach * 2.0);
        println!("memory: {:.1} GB/s", measure::memory(self.stream.device(), 1 << 24, REPEATS)?);
        Ok(())
    }

    fn small_operations(&self) -> Result<(), AllocError> {
        let (n, d, f, s) = (2048, 576, 1536, &self.stream);
        let (x, out, dx, w, rstd) = (self.of(n * d)?, self.of(n * d)?, self.of(n * d)?, self.of(d)?, self.of(n)?);
        let bytes = |buffers: usize, width: usize| (4 * buffers * n * width) as f64;
        self.report("rms_norm forward 2048 x 576", bytes(2, d), "GB/s", || {
            rms_norm::forward(s, &out, &rstd, &x, &w, 1e-5)
        });
        let saved = rms_norm::Saved { x: &x, weight: &w, rstd: &rstd };
        let dw = self.of(d)?;
        self.report("rms_norm backward 2048 x 576", bytes(3, d), "GB/s", || {
            rms_norm::backward(s, &dx, Some(&dw), saved, &out, false)
        });
        let (positions, inv_freq) = (self.zeros(n)?, self.of(32)?);
        self.report("rope forward 2048 x 9 x 64", bytes(2, d), "GB/s", || {
            rope::forward(s, &x, &positions, &inv_freq, 1.0)
        });
        let (gate, up, act) = (self.of(n * f)?, self.of(n * f)?, self.of(n * f)?);
        self.report("swiglu forward 2048 x 1536", bytes(3, f), "GB/s", || swiglu::forward(s, &act, &gate, &up));
        self.report("swiglu backward 2048 x 1536", bytes(5, f), "GB/s", || swiglu::backward(s, &gate, &up, &act));
        let draw = Draw { seed: 1, purpose: 2, step: 3 };
        let dropout = Dropout { rate: 0.1, draw, first_sample: 0, length: 1024, width: d };
        self.report("dropout forward 2048 x 576", bytes(2, d), "GB/s", || dropout::forward(s, &out, &x, dropout));
        self.flat()
    }

    fn flat(&self) -> Result<(), AllocError> {
        let (len, s) = (1 << 23, &self.stream);
        let (p, m, v, g, one) = (self.of(len)?, self.of(len)?, self.of(len)?, self.of(len)?, self.of(1)?);
        let bytes = (4 * len) as f64;
        let step = adamw::Step {
            learning_rate: 1e-3,
            beta1: 0.9,
            beta2: 0.95,
            eps: 1e-8,
            weight_decay: 0.1,
            step: 2,
            gradient_scale: 0.5,
        };
        elementwise::fill(s, &v, 0.5);
        self.report("adamw 8 Mi", 7.0 * bytes, "GB/s", || {
            adamw::step(s, adamw::State { p: &p, m: &m, v: &v }, &g, step)
        });
        self.report("sum_of_squares 8 Mi", bytes, "GB/s", || reduce::sum_of_squares(s, &one, &g));
        self.report("normal 8 Mi", len as f64, "G/s", || {
            normal(s, &g, 0.0, 1.0, Draw { seed: 1, purpose: 1, step: 0 })
        });
        Ok(())
    }

    fn attention(&self, rows: usize, length: usize, [heads, kv_heads, head_dim]: [usize; 3]) -> Result<(), AllocError> {
        let (n, s) = (rows * length, &self.stream);
        let of = |heads: usize| self.of(n * heads * head_dim);
        let (q, k, v, out, dout, lse) =
            (of(heads)?, of(kv_heads)?, of(kv_heads)?, of(heads)?, of(heads)?, self.of(n * heads)?);
        let (dq, dk, dv, starts) = (of(heads)?, of(kv_heads)?, of(kv_heads)?, self.zeros(n)?);
        let shape = attention::Shape { rows, length, heads, kv_heads, head_dim, scale: 0.125 };
        let (from, to) = (Inputs { q: &q, k: &k, v: &v, segment_start: &starts }, Outputs { out: &out, lse: &lse });
        // Two products over half of all scores; the backward pass has five.
        let operations = (2 * n * length * heads * head_dim) as f64;
        let name = format!("attention {rows} x {length}, {heads}/{kv_heads} heads of {head_dim}");
        self.report(&format!("{name} fwd"), operations, "GFLOP/s", || attention::forward(s, to, from, shape));
        let gradients = Gradients { dq: &dq, dk: &dk, dv: &dv };
        self.report(&format!("{name} bwd"), 2.5 * operations, "GFLOP/s", || {
            attention::backward(s, gradients, from, to, &dout, shape)
        });
        Ok(())
    }

    fn loss(&self, n: usize, vocab: usize) -> Result<(), AllocError> {
        let (logits, nll, targets) = (self.of(n * vocab)?, self.of(n)?, self.zeros(n)?);
        let (name, bytes) = (format!("cross_entropy {n} x {vocab}"), (4 * n * vocab) as f64);
        self.report(&format!("{name} fwd"), bytes, "GB/s", || {
            cross_entropy::forward(&self.stream, &nll, &logits, &targets)
        });
        self.report(&format!("{name} fwd + bwd"), 2.0 * bytes, "GB/s", || {
            cross_entropy::forward_backward(&self.stream, &nll, &logits, &targets, 1.0)
        });
        Ok(())
    }
}
