//! The only place where the trainer gets device memory: buffers by name, exactly those of the plan's arena table.

use kernels::{AllocError, Buffer, DType, Device, Stream};
use plan::memory::bytes_of;
use protocol::plan::ArenaLine;
use protocol::{Code, Outcome, Problem};
use std::collections::HashMap;

/// The lines of a table that were not taken yet, on a device.
pub struct Arena {
    device: Device,
    left: HashMap<String, u64>,
}

impl Arena {
    /// An arena over a table; nothing is allocated before it is taken.
    pub fn new(device: &Device, table: &[ArenaLine]) -> Arena {
        let left = table.iter().map(|line| (line.name.clone(), line.bytes)).collect();
        Arena { device: device.clone(), left }
    }

    /// The buffer of this name: `len` floats, zero. Each name is given once.
    /// Errors: `OutOfMemory` where the device has no more; `Internal` where the table has no such line.
    pub fn take(&mut self, name: &str, len: usize) -> Outcome<Buffer> {
        self.take_as(name, len, DType::F32)
    }

    /// As [`Arena::take`], of ids.
    pub fn take_ids(&mut self, name: &str, len: usize) -> Outcome<Buffer> {
        self.take_as(name, len, DType::U32)
    }

    /// Makes the room that a card's operations need beside their buffers, where the table has a line of this name.
    /// Errors: `OutOfMemory`.
    pub fn reserve(&mut self, name: &str, stream: &Stream) -> Outcome<()> {
        let Some(bytes) = self.left.remove(name) else { return Ok(()) };
        stream.reserve(bytes).map_err(|error| out_of_memory(&self.device, name, error))
    }

    /// Names that nobody took; none, once everything is built.
    pub fn untaken(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self.left.keys().map(String::as_str).collect();
        names.sort_unstable();
        names
    }

    fn take_as(&mut self, name: &str, len: usize, dtype: DType) -> Outcome<Buffer> {
        let wanted = bytes_of(len as u64);
        match self.left.remove(name) {
            Some(bytes) if bytes == wanted => {}
            planned => {
                let what = format!("the arena has {planned:?} bytes for {name} and {wanted} were asked for");
                return Err(Problem::internal(what));
            }
        }
        self.device.alloc(len, dtype).map_err(|error| out_of_memory(&self.device, name, error))
    }
}

fn out_of_memory(device: &Device, name: &str, error: AllocError) -> Problem {
    Problem::new(Code::OutOfMemory, format!("device {} has no room for {name}", device.name()))
        .why(error.to_string())
        .kept("nothing was changed")
        .remedy("close other programs, or choose a smaller max_length, an adapter or a smaller model")
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::plan::Part;

    fn arena(device: &Device) -> Arena {
        Arena::new(device, &[ArenaLine { name: "a".into(), part: Part::Weights, bytes: 64 }])
    }

    #[test]
    fn only_what_the_plan_lists_is_given_and_only_once() {
        let device = Device::cpu(1);
        let mut arena = arena(&device);
        assert_eq!(arena.take("b", 10).unwrap_err().code, Code::Internal);
        assert_eq!(arena.untaken(), ["a"]);
        let _a = arena.take("a", 10).unwrap();
        assert_eq!((device.bytes_in_use(), arena.take("a", 10).is_err()), (64, true));
    }

    #[test]
    fn a_full_device_is_said_by_name() {
        let device = Device::cpu(1);
        device.set_budget(Some(10));
        let problem = arena(&device).take("a", 10).unwrap_err();
        assert_eq!(problem.code, Code::OutOfMemory);
        assert!(problem.what.contains('a') && problem.why.contains("budget"), "{problem:?}");
    }
}
