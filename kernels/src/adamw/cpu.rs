//! TEMP
use super::Step;
use crate::team::Team;
pub(super) fn step(_team: &Team, _state: [&mut [f32]; 3], _g: &[f32], _step: Step) {
    todo!()
}
