//! TEMP
use crate::team::Team;
pub(super) fn add(_team: &Team, _y: &mut [f32], _x: &[f32]) {
    todo!()
}
pub(super) fn axpy(_team: &Team, _y: &mut [f32], _alpha: f32, _x: &[f32]) {
    todo!()
}
pub(super) fn scale(_team: &Team, _x: &mut [f32], _alpha: f32) {
    todo!()
}
pub(super) fn fill(_team: &Team, _x: &mut [f32], _value: f32) {
    todo!()
}
pub(super) fn copy(_team: &Team, _to: &mut [f32], _from: &[f32]) {
    todo!()
}
