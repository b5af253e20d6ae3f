//! Which CUDA devices there are.

use super::{DeviceError, libraries};
use cudarc::driver::result::{self, DriverError, device};
use cudarc::driver::sys::{self, CUdevice_attribute as Attribute};

/// What a device says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    /// Its number, from 0: what [`crate::Device::cuda`] takes.
    pub index: usize,
    /// As its maker calls it.
    pub name: String,
    /// Compute capability: 9 and 0 for `sm_90`.
    pub capability: (u32, u32),
    /// Bytes of its memory.
    pub memory_total: u64,
    /// Bytes of it that are free now; `None` where the device would not say.
    pub memory_free: Option<u64>,
    /// Where it sits: `00000000:41:00.0`.
    pub pci: String,
    /// What stays the same when devices are numbered anew: `GPU-` and 32 digits in groups.
    pub uuid: String,
}

/// All CUDA devices of the machine.
///
/// # Errors
/// [`DeviceError::Library`] without a driver, [`DeviceError::Call`] where the driver has no answer. A driver without
/// devices is an empty list. For free memory each device gets a context for a moment, which takes some 0.2 s.
pub fn devices() -> Result<Vec<DeviceInfo>, DeviceError> {
    let count = count()?;
    (0..count).map(|index| info(index).map_err(|e| DeviceError::of_driver("asking for a device", e))).collect()
}

/// Number of devices, once the driver runs.
pub(super) fn count() -> Result<usize, DeviceError> {
    libraries().driver.or_error()?;
    let no_device = |e: &DriverError| e.0 == sys::CUresult::CUDA_ERROR_NO_DEVICE;
    match result::init().and_then(|()| device::get_count()) {
        Ok(count) => Ok(count.max(0) as usize),
        Err(error) if no_device(&error) => Ok(0),
        Err(error) => Err(DeviceError::of_driver("starting the driver", error)),
    }
}

/// One attribute of a device as a number.
pub(super) fn attribute(of: sys::CUdevice, attribute: Attribute) -> Result<u32, DriverError> {
    // SAFETY: the handle came from the driver.
    unsafe { device::get_attribute(of, attribute) }.map(|value| value.max(0) as u32)
}

pub(super) fn capability(of: sys::CUdevice) -> Result<(u32, u32), DriverError> {
    let major = attribute(of, Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
    Ok((major, attribute(of, Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?))
}

fn info(index: usize) -> Result<DeviceInfo, DriverError> {
    let of = device::get(index as i32)?;
    let domain = attribute(of, Attribute::CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID)?;
    let bus = attribute(of, Attribute::CU_DEVICE_ATTRIBUTE_PCI_BUS_ID)?;
    let slot = attribute(of, Attribute::CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID)?;
    Ok(DeviceInfo {
        index,
        name: device::get_name(of)?,
        capability: capability(of)?,
        // SAFETY: the handle came from the driver.
        memory_total: unsafe { device::total_mem(of) }? as u64,
        memory_free: memory_free(of).ok(),
        pci: format!("{domain:08x}:{bus:02x}:{slot:02x}.0"),
        uuid: uuid(device::get_uuid(of)?),
    })
}

fn memory_free(of: sys::CUdevice) -> Result<u64, DriverError> {
    // SAFETY: the handle came from the driver; what is retained is released below.
    unsafe {
        let context = result::primary_ctx::retain(of)?;
        let free = result::ctx::set_current(context).and_then(|()| result::mem_get_info());
        let _ = result::ctx::set_current(std::ptr::null_mut());
        let _ = result::primary_ctx::release(of);
        free.map(|(free, _)| free as u64)
    }
}

fn uuid(of: sys::CUuuid) -> String {
    let hex: String = of.bytes.iter().map(|byte| format!("{:02x}", *byte as u8)).collect();
    format!("GPU-{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}
