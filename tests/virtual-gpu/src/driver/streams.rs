//! Streams and events.

use super::{put, status, stream};
use crate::graph::forget_captures;
use crate::state::{code, current, gpu};
use crate::stream::{Event, Stream};
use std::ffi::{c_int, c_uint, c_void};

#[unsafe(no_mangle)]
unsafe extern "C" fn cuStreamCreate(out: *mut usize, flags: c_uint) -> u32 {
    cuStreamCreateWithPriority(out, flags, 0)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuStreamCreateWithPriority(out: *mut usize, flags: c_uint, _priority: c_int) -> u32 {
    status(|| {
        let device = current()?;
        if flags > 1 || out.is_null() {
            return Err(code::INVALID_VALUE);
        }
        put(out, gpu().streams.insert(Stream::start(device.id)))
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamDestroy_v2(handle: usize) -> u32 {
    status(|| {
        let stream = gpu().streams.remove(handle)?;
        forget_captures(stream.device, Some(&stream));
        stream.close();
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamSynchronize(handle: usize) -> u32 {
    status(|| {
        let stream = stream(handle)?;
        stream.refuse_capture(code::STREAM_CAPTURE_UNSUPPORTED)?;
        stream.synchronize();
        gpu().devices[stream.device].healthy()
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamQuery(handle: usize) -> u32 {
    status(|| {
        let stream = stream(handle)?;
        stream.refuse_capture(code::STREAM_CAPTURE_UNSUPPORTED)?;
        if stream.is_idle() { Ok(()) } else { Err(code::NOT_READY) }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamWaitEvent(handle: usize, event: usize, _flags: c_uint) -> u32 {
    status(|| {
        let stream = stream(handle)?;
        gpu().events.get(event)?.hold(&stream)
    })
}

type HostFunction = unsafe extern "C" fn(*mut c_void);

#[unsafe(no_mangle)]
unsafe extern "C" fn cuLaunchHostFunc(handle: usize, function: Option<HostFunction>, argument: *mut c_void) -> u32 {
    status(|| {
        let stream = stream(handle)?;
        let function = function.ok_or(code::INVALID_VALUE)?;
        let argument = argument as usize;
        stream.submit(0, move |_| function(argument as *mut c_void));
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuEventCreate(out: *mut usize, flags: c_uint) -> u32 {
    status(|| {
        current()?;
        if out.is_null() {
            return Err(code::INVALID_VALUE);
        }
        put(out, gpu().events.insert(Event::new(flags & 2 != 0)))
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuEventDestroy_v2(event: usize) -> u32 {
    status(|| gpu().events.remove(event).map(|_| ()))
}

#[unsafe(no_mangle)]
extern "C" fn cuEventRecord(event: usize, handle: usize) -> u32 {
    status(|| {
        let stream = stream(handle)?;
        gpu().events.get(event)?.record(&stream);
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuEventSynchronize(event: usize) -> u32 {
    status(|| {
        let device = current()?;
        gpu().events.get(event)?.synchronize()?;
        device.healthy()
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuEventQuery(event: usize) -> u32 {
    status(|| {
        let event = gpu().events.get(event)?;
        current()?;
        event.query()
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuEventElapsedTime(milliseconds: *mut f32, from: usize, to: usize) -> u32 {
    status(|| {
        current()?;
        let (from, to) = (gpu().events.get(from)?, gpu().events.get(to)?);
        put(milliseconds, to.milliseconds_since(&from)?)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuEventElapsedTime_v2(milliseconds: *mut f32, from: usize, to: usize) -> u32 {
    cuEventElapsedTime(milliseconds, from, to)
}
