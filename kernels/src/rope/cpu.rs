//! TEMP
use crate::team::Team;
pub(super) fn turn(_team: &Team, _x: &mut [f32], _positions: &[u32], _inv_freq: &[f32], _sign: f32) {
    todo!()
}
