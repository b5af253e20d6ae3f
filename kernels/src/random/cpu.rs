//! TEMP
use super::Draw;
use crate::team::Team;
pub(super) fn normal(_team: &Team, _x: &mut [f32], _mean: f32, _std: f32, _draw: Draw) {
    todo!()
}
