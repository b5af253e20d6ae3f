//! The textbook: look up, and add back.

pub(super) fn forward(table: &[f64], ids: &[u32], width: usize) -> Vec<f64> {
    ids.iter().flat_map(|id| &table[*id as usize * width..][..width]).copied().collect()
}

pub(super) fn backward(entries: usize, dout: &[f64], ids: &[u32], width: usize) -> Vec<f64> {
    let mut dtable = vec![0.0; entries * width];
    for (i, dout) in dout.iter().enumerate() {
        dtable[ids[i / width] as usize * width + i % width] += dout;
    }
    dtable
}
