//! TEMP
use super::{Orientation, Shape};
use crate::team::Team;
pub(super) fn product(
    _team: &Team,
    _o: Orientation,
    _out: &mut [f32],
    _a: &[f32],
    _b: &[f32],
    _shape: Shape,
    _scale: [f32; 2],
) {
    todo!()
}
