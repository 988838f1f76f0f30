//! The compiled kernels of a CUDA device, and their launches.

use std::sync::{Arc, OnceLock};

use candle_core::cuda_backend::cudarc::driver::{
    CudaFunction, CudaStream, LaunchArgs, LaunchConfig,
};
use candle_core::cuda_backend::cudarc::nvrtc::compile_ptx;
use candle_core::op::BackpropOp;
use candle_core::{CudaDevice, CudaStorage, Device, Result, Storage, Tensor};

const SOURCE: &str = include_str!("kernels.cu");
const MODULE: &str = "attnscope_rows";

/// The kernels as PTX: compiled once in a process; `None` if that failed.
fn ptx() -> Option<&'static str> {
    static PTX: OnceLock<Option<String>> = OnceLock::new();
    let compiled = PTX.get_or_init(|| match compile_ptx(SOURCE) {
        Ok(ptx) => Some(ptx.to_src()),
        Err(problem) => {
            log::warn!(
                "the kernels for CUDA cannot be compiled, so that runs are slower: {problem:?}"
            );
            None
        }
    });
    compiled.as_deref()
}

/// Kernels on a device.
pub(super) struct Kernels<'a> {
    device: &'a CudaDevice,
    ptx: &'static str,
}

impl<'a> Kernels<'a> {
    /// `None` if the device is not one of CUDA, or its driver refuses the kernels.
    pub fn of(device: &'a Device) -> Option<Self> {
        let Device::Cuda(device) = device else {
            return None;
        };
        let kernels = Self {
            device,
            ptx: ptx()?,
        };
        // Loaded once; found by name afterwards.
        match kernels.kernel("rows") {
            Ok(_) => Some(kernels),
            Err(problem) => {
                log::warn!("the kernels for CUDA cannot be loaded: {problem}");
                None
            }
        }
    }

    /// A kernel by name.
    pub fn kernel(&self, name: &str) -> Result<CudaFunction> {
        let kernel = self
            .device
            .get_or_load_custom_func(name, MODULE, self.ptx)?;
        Ok(kernel.into_cuda_function())
    }

    /// Where the device's work is queued.
    pub fn stream(&self) -> Arc<CudaStream> {
        self.device.cuda_stream()
    }

    /// Memory for `n` values that a kernel is about to write.
    pub fn uninitialised(&self, n: usize) -> Result<Tensor> {
        #[expect(
            unsafe_code,
            reason = "filling memory first would cost as much as the kernel"
        )]
        // SAFETY: every kernel here writes all values of its outputs, and nothing reads them before.
        let slice = unsafe { self.device.alloc::<f32>(n) }?;
        let storage = CudaStorage::wrap_cuda_slice(slice, self.device.clone());
        let storage = Storage::Cuda(storage);
        Ok(Tensor::from_storage(storage, n, BackpropOp::none(), false))
    }
}

/// Starts a kernel on a grid of blocks. It runs in the order of the device's other work.
///
/// Arguments have the types and the order of the kernel's, and point to tensors that the caller keeps until this returns.
pub(super) fn launch(
    mut kernel: LaunchArgs<'_>,
    grid_dim: (u32, u32, u32),
    block_dim: (u32, u32, u32),
) -> Result<()> {
    let shape = LaunchConfig {
        grid_dim,
        block_dim,
        shared_mem_bytes: 0,
    };
    #[expect(unsafe_code, reason = "a kernel is code that Rust does not check")]
    // SAFETY: as above; memory is freed in the order of the stream, which is after the kernel has run.
    unsafe { kernel.launch(shape) }
        .map(|_| ())
        .map_err(|problem| candle_core::Error::Cuda(Box::new(problem)))
}
