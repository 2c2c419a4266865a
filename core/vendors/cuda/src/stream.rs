//! Streams of CUDA.

use std::ffi::c_void;

use cudarc::driver::sys::{CUdeviceptr, CUstream, CUstream_flags};

use flagos_core::error::{Error, Result};
use flagos_core::runtime::HostFn;
use flagos_vendor_kit::call;
use flagos_vendor_kit::driver::{
    DriverDevice as _, DriverEvent, DriverStream, DriverStreams, Handle,
};

use super::api::SUCCESS;
use super::device::Device;
use super::error::failed;
use super::event::NOT_READY;
use super::peer;

impl DriverStreams for Device {
    fn new_stream(&self, priority: i32) -> Result<Handle> {
        let api = self.api;
        let (mut least, mut greatest) = (0, 0);
        let mut stream: CUstream = std::ptr::null_mut();
        let flags = CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
        // SAFETY: valid outputs.
        unsafe {
            call!(api, cuCtxGetStreamPriorityRange(&mut least, &mut greatest))?;
            // A more urgent priority is a lower number, so that `greatest` is the lowest number.
            let priority = priority.clamp(greatest.min(least), least.max(greatest));
            call!(
                api,
                cuStreamCreateWithPriority(&mut stream, flags, priority)
            )?;
        }
        Ok(stream.cast())
    }

    fn check_stream(&self, stream: &DriverStream<Self>) -> Result<()> {
        let mut context = std::ptr::null_mut();
        // SAFETY: a valid output, and a live stream.
        unsafe {
            call!(
                self.api,
                cuStreamGetCtx(stream.handle().cast(), &mut context)
            )
        }
        .map_err(|error| self.located(error))?;
        if context == self.context()? {
            return Ok(());
        }
        let message = "the stream belongs to another device, or not to its primary context";
        Err(self
            .located(Error::invalid_argument("external_stream", message))
            .with_hint("pass the device that the stream was made on"))
    }

    fn is_finished(&self, stream: &DriverStream<Self>) -> Result<bool> {
        // SAFETY: a live stream.
        match unsafe { (self.api.cuStreamQuery)(stream.handle().cast()) } {
            SUCCESS => Ok(true),
            NOT_READY => Ok(false),
            code => Err(failed(self.api, "cuStreamQuery", code)),
        }
    }

    fn wait_for_all(&self) -> Result<()> {
        // SAFETY: the context is current.
        unsafe { call!(self.api, cuCtxSynchronize()) }
    }

    fn wait_for_stream(&self, stream: &DriverStream<Self>) -> Result<()> {
        // SAFETY: a live stream.
        unsafe { call!(self.api, cuStreamSynchronize(stream.handle().cast())) }
    }

    /// CUDA infers the kinds of memory from the addresses. It waits for a copy from host memory to host memory, and may
    /// wait when one side is ordinary memory.
    unsafe fn queue_copy(
        &self,
        stream: &DriverStream<Self>,
        dst: *mut u8,
        src: *const u8,
        nbytes: usize,
    ) -> Result<()> {
        let (to, from) = (dst as CUdeviceptr, src as CUdeviceptr);
        if self.peers.has_new() {
            peer::arrange(self, [to, from]);
        }
        // SAFETY: the caller's promise.
        unsafe {
            call!(
                self.api,
                cuMemcpyAsync(to, from, nbytes, stream.handle().cast())
            )
        }
    }

    unsafe fn queue_call(
        &self,
        stream: &DriverStream<Self>,
        function: HostFn,
        context: *mut c_void,
    ) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe {
            call!(
                self.api,
                cuLaunchHostFunc(stream.handle().cast(), Some(function), context)
            )
        }
    }

    fn queue_record(&self, stream: &DriverStream<Self>, event: &DriverEvent<Self>) -> Result<()> {
        // SAFETY: a live event and a live stream of one context.
        unsafe {
            call!(
                self.api,
                cuEventRecord(event.handle().cast(), stream.handle().cast())
            )
        }
    }

    fn queue_wait(&self, stream: &DriverStream<Self>, event: &DriverEvent<Self>) -> Result<()> {
        // SAFETY: a live event, of any device, and a live stream.
        unsafe {
            call!(
                self.api,
                cuStreamWaitEvent(stream.handle().cast(), event.handle().cast(), 0)
            )
        }
    }
}
