//! One tensor of the model, with its gradient where it moves.

use crate::arena::Arena;
use crate::weights::WeightSource;
use kernels::{Buffer, Stream};
use plan::memory::gradient;
use protocol::Outcome;
use protocol::facts::TensorShape;

/// A tensor on the device. Clones are handles on the same memory.
#[derive(Clone, Debug)]
pub struct Parameter {
    /// Its name in files, and its shape.
    pub tensor: TensorShape,
    /// The values.
    pub weight: Buffer,
    /// What the backward pass adds to; `None` where the tensor does not move.
    pub gradient: Option<Buffer>,
}

impl Parameter {
    /// Takes the tensor from the arena, with a gradient if it `moves`, and loads its values.
    pub fn load(
        tensor: TensorShape,
        moves: bool,
        arena: &mut Arena,
        weights: &dyn WeightSource,
        stream: &Stream,
    ) -> Outcome<Parameter> {
        let elements = tensor.elements() as usize;
        let weight = arena.take(&tensor.name, elements)?;
        let gradient = if moves { Some(arena.take(&gradient(&tensor.name), elements)?) } else { None };
        weights.load(&tensor, stream, &weight)?;
        Ok(Parameter { tensor, weight, gradient })
    }

    /// Weight decay pulls on matrices only: a norm's weight or a bias has no reason to be near zero.
    pub fn decays(&self) -> bool {
        self.tensor.shape.len() >= 2
    }
}
