//! The parameters of the kernel `rows`, in the order of its struct.

use candle_core::cuda_backend::CudaDType;
use candle_core::cuda_backend::cudarc::driver::{DevicePtr, DeviceRepr};
use candle_core::{DType, Result, Storage, Tensor};

use super::super::group::{BiasTable, Group};
use super::super::maps::Copies;
use super::super::scores::{Block, row_scales};
use crate::attention::NoVisible;

/// `Rows` of kernels.cu. Pointers are addresses on the device; 0 where there is nothing.
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub(super) struct Parameters {
    products: u64,
    pattern: u64,
    scores: u64,
    figures: u64,
    row_scales: u64,
    inverse_k_norms: u64,
    visible: u64,
    chosen: u64,
    real: u64,
    bias: u64,
    positions: u64,
    sinks: u64,
    columns: u64,
    value_norms: u64,
    tokens: u64,
    tokens_before: u64,
    n_all_rows: u32,
    n_rows: u32,
    n_keys: u32,
    first_query: u32,
    n_queries: u32,
    bias_kind: u32,
    n_distances: u32,
    softcap: f32,
    share: f32,
    caps_bias: u32,
}

#[expect(unsafe_code, reason = "what a kernel takes by value")]
// SAFETY: plain numbers in C's layout, the same fields as in kernels.cu.
unsafe impl DeviceRepr for Parameters {}

/// Parameters, and the tensors that they point to.
pub(super) struct Rows {
    parameters: Parameters,
    /// Kept until the launch.
    _tensors: Vec<Tensor>,
}

impl Rows {
    pub fn prepare(
        group: &Group<'_>,
        block: &Block,
        products: &Tensor,
        columns: Option<&Tensor>,
        copies: Option<&Copies>,
    ) -> Result<Self> {
        let (run, device) = (group.run, products.device());
        let (n_rows, n_keys) = (block.n_rows(), block.n_keys);
        let mut kept = Vec::new();
        let mut put = |tensor: Tensor| -> Result<u64> {
            let at = pointer(&tensor)?;
            kept.push(tensor);
            Ok(at)
        };
        let visible = block.visible_ranges();
        let visible = put(Tensor::from_vec(visible, (n_rows, 5), device)?)?;
        let chosen = block.chosen_keys(run.visibility);
        let chosen = put(Tensor::from_vec(chosen, (n_rows, 3), device)?)?;
        let scales = row_scales(group, block);
        let row_scales = put(Tensor::from_vec(scales, group.n_heads() * n_rows, device)?)?;
        let real = match block.real_keys() {
            Some(real) => put(Tensor::from_slice(real, n_keys, device)?)?,
            None => 0,
        };
        let (bias_kind, bias) = match &group.bias {
            BiasTable::None => (0, None),
            BiasTable::Slopes(slopes) => (1, Some(slopes)),
            BiasTable::OfKeys(bias) => (2, Some(bias)),
            BiasTable::OfDistances(bias) => (3, Some(bias)),
            BiasTable::OfPairs(bias) => (4, Some(bias)),
        };
        let n_distances = match &group.bias {
            BiasTable::OfDistances(table) => table.dim(1)? as u32,
            _ => 0,
        };
        let positions = if bias_kind == 1 {
            let n = n_keys.max(run.visibility.n_queries);
            let at = |idx: usize| run.positions.get(idx).copied().unwrap_or(idx) as f32;
            let positions: Vec<f32> = (0..n).map(at).collect();
            put(Tensor::from_vec(positions, n, device)?)?
        } else {
            0
        };
        let of = |tensor: Option<&Tensor>| tensor.map_or(Ok(0), pointer);
        let [tokens, tokens_before] = match copies {
            Some(copies) => {
                let [own, before] = copies.tokens();
                [pointer(own)?, pointer(before)?]
            }
            None => [0, 0],
        };
        let parameters = Parameters {
            products: pointer(products)?,
            row_scales,
            inverse_k_norms: pointer(&group.inverse_k_norms)?,
            visible,
            chosen,
            real,
            bias: of(bias)?,
            positions,
            sinks: of(group.sinks.as_ref())?,
            columns: of(columns)?,
            value_norms: of(group.value_norms.as_ref())?,
            tokens,
            tokens_before,
            n_all_rows: (group.n_heads() * n_rows) as u32,
            n_rows: n_rows as u32,
            n_keys: n_keys as u32,
            first_query: block.queries.start as u32,
            n_queries: run.visibility.n_queries as u32,
            bias_kind,
            n_distances,
            softcap: run.spec.softcap.unwrap_or(0.0),
            share: match run.spec.no_visible {
                NoVisible::Uniform => 1.0 / n_keys as f32,
                NoVisible::Zero | NoVisible::Nan => 0.0,
            },
            caps_bias: u32::from(run.spec.caps_bias),
            ..Parameters::default()
        };
        Ok(Self {
            parameters,
            _tensors: kept,
        })
    }

    pub fn with_outputs(&self, pattern: u64, scores: u64, figures: u64) -> Parameters {
        Parameters {
            pattern,
            scores,
            figures,
            ..self.parameters
        }
    }
}

/// Where a contiguous tensor begins on its device. The tensor has to be kept until the launch.
pub(super) fn pointer(tensor: &Tensor) -> Result<u64> {
    let (storage, layout) = tensor.storage_and_layout();
    let Storage::Cuda(on_device) = &*storage else {
        candle_core::bail!("a tensor is not on the CUDA device");
    };
    if !layout.is_contiguous() {
        candle_core::bail!("a kernel takes contiguous tensors");
    }
    let stream = on_device.device.cuda_stream();
    let start = match tensor.dtype() {
        DType::F32 => address::<f32>(on_device, &stream)?,
        DType::F64 => address::<f64>(on_device, &stream)?,
        DType::U32 => address::<u32>(on_device, &stream)?,
        DType::U8 => address::<u8>(on_device, &stream)?,
        other => candle_core::bail!("no kernel takes {other:?}"),
    };
    Ok(start + (layout.start_offset() * tensor.dtype().size_in_bytes()) as u64)
}

fn address<T: CudaDType>(
    storage: &candle_core::CudaStorage,
    stream: &candle_core::cuda_backend::cudarc::driver::CudaStream,
) -> Result<u64> {
    let (address, _) = storage.as_cuda_slice::<T>()?.device_ptr(stream);
    Ok(address)
}
