//! Critical errors that the driver tells of (Xid), heard between two samples.

use nvml_wrapper::bitmasks::event::EventTypes;
use nvml_wrapper::enums::event::XidError;
use nvml_wrapper::{EventSet, Nvml};
use protocol::machine::GpuXid;
use std::collections::BTreeMap;

/// NVIDIA's number of an error that has none.
const UNKNOWN: u64 = 999;
/// Errors heard at once: a card in trouble repeats itself.
const AT_ONCE: u32 = 64;

/// What was heard, by card. Empty where the driver tells no events.
#[derive(Default)]
pub struct Xids {
    set: Option<EventSet<'static>>,
    newest: BTreeMap<u32, GpuXid>,
}

impl Xids {
    /// Listens to every card that can tell.
    pub fn watch(nvml: &'static Nvml) -> Xids {
        let mut set = nvml.create_event_set().ok();
        for card in (0..nvml.device_count().unwrap_or(0)).filter_map(|i| nvml.device_by_index(i).ok()) {
            // A card that cannot tell takes the set with it: the others get a new one.
            set = set.and_then(|set| card.register_events(EventTypes::CRITICAL_XID_ERROR, set).ok());
            set = set.or_else(|| nvml.create_event_set().ok());
        }
        Xids { set, newest: BTreeMap::new() }
    }

    /// Takes in what happened since the last time, without waiting.
    pub fn hear(&mut self) {
        let Some(set) = &self.set else { return };
        for _ in 0..AT_ONCE {
            let Ok(event) = set.wait(0) else { return };
            let code = match event.event_data {
                Some(XidError::Value(code)) => code,
                Some(XidError::Unknown) => UNKNOWN,
                None => continue,
            };
            let at_ms = jiff::Timestamp::now().as_millisecond();
            if let Ok(index) = event.device.index() {
                self.newest.insert(index, GpuXid { code, at_ms });
            }
        }
    }

    /// The newest error of a card.
    pub fn of(&self, index: u32) -> Option<GpuXid> {
        self.newest.get(&index).copied()
    }
}
