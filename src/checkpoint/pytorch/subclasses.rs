//! Tensors of torchao's classes in a pickle: finds their parts by attribute name. No class is imported or instantiated.
//!
//! `torch.save` writes a tensor subclass as its element type, shape and attributes (`_rebuild_wrapper_subclass`).

use super::globals::{ARGUMENT, DTYPE};
use super::pickle::Pickled;
use super::value::{Global, Value};

/// Wrapper classes that only describe how activations are quantised.
const AROUND: [&str; 2] = [
    "LinearActivationQuantizedTensor",
    "WeightTensorWithLinearActivationQuantizationMetadata",
];
/// Classes whose codes and scales are attributes of the tensor itself.
const PLAIN: [&str; 3] = ["Int8Tensor", "IntxUnpackedToInt8Tensor", "Float8Tensor"];
/// The class with an inner tensor in one of several layouts, and the layouts that can be read.
const AFFINE: &str = "AffineQuantizedTensor";
const PLAIN_FORM: &str = "PlainAQTTensorImpl";
const FLOAT_FORM: &str = "Float8AQTTensorImpl";
/// Member of `ZeroPointDomain` for zero points that are floats.
const OF_FLOATS: i64 = 2;
/// Limit on nested wrapper classes.
const DEEPEST: usize = 4;

/// The parts of a quantised matrix, as indices of tensors in the heap.
pub struct Subclass {
    /// Whether the codes are eight-bit floats.
    pub is_float: bool,
    /// Type to which the library rounds dequantised values.
    pub dtype: &'static str,
    /// Block of rows and columns that shares a scale.
    pub block: Vec<u64>,
    pub codes: usize,
    pub scales: usize,
    pub zeros: Option<usize>,
}

/// Whether a value is a tensor subclass.
pub fn is_subclass(pickled: &Pickled<'_>, value: &Value<'_>) -> bool {
    attribute(pickled, value, DTYPE).is_some()
}

/// Finds the parts of a tensor subclass.
///
/// # Errors
/// When the class cannot be read, or an attribute is missing.
pub fn read(pickled: &Pickled<'_>, value: &Value<'_>) -> Result<Subclass, String> {
    let mut value = value;
    for _ in 0..DEEPEST {
        let class = class_of(pickled, value)?;
        if !AROUND.contains(&class) {
            return of_class(pickled, value, class);
        }
        value = need(pickled, value, "original_weight_tensor")?;
    }
    Err("tensor subclasses nested too deeply".to_owned())
}

fn of_class(pickled: &Pickled<'_>, value: &Value<'_>, class: &str) -> Result<Subclass, String> {
    let refused = |class: &str| {
        let readable = [&PLAIN[..], &[AFFINE]].concat().join(", ");
        Err(format!(
            "torchao's {class} cannot be read; readable: {readable}, the last in its plain layout"
        ))
    };
    let dtype = match need(pickled, value, DTYPE)? {
        Value::Global(Global::Dtype(name)) => *name,
        other => return Err(format!("expected an element type, found {}", other.kind())),
    };
    let (inside, [codes, scales, zeros], is_float) = match class {
        _ if PLAIN.contains(&class) => {
            let parts = ["qdata", "scale", "zero_point"];
            (value, parts, class.starts_with("Float"))
        }
        AFFINE => {
            let inside = need(pickled, value, "tensor_impl")?;
            match class_of(pickled, inside)? {
                PLAIN_FORM => (inside, ["int_data", "scale", "zero_point"], false),
                FLOAT_FORM => (inside, ["float8_data", "scale", "zero_point"], true),
                form => return refused(form),
            }
        }
        other => return refused(other),
    };
    let domain = attribute(pickled, value, "zero_point_domain");
    if domain.and_then(|domain| attribute(pickled, domain, ARGUMENT))
        == Some(&Value::Int(OF_FLOATS))
    {
        return Err("zero points that are no whole numbers cannot be read".to_owned());
    }
    if let Some(Value::Tensor(_)) = attribute(pickled, value, "act_pre_scale") {
        return Err(
            "a scale of what it is multiplied with (act_pre_scale) cannot be read".to_owned(),
        );
    }
    if let Some(Value::Bool(true)) = attribute(pickled, inside, "transposed") {
        return Err("a transposed matrix cannot be read".to_owned());
    }
    let tensor = |name: &str| match attribute(pickled, inside, name) {
        Some(Value::Tensor(idx)) => Ok(Some(*idx)),
        None | Some(Value::None) => Ok(None),
        Some(other) => Err(format!("{name}: expected a tensor, found {}", other.kind())),
    };
    let needed = |name: &str| tensor(name)?.ok_or_else(|| format!("has no {name}"));
    let block = match pickled.heap.items(need(pickled, value, "block_size")?) {
        Some(sizes) => sizes.iter().map(size).collect::<Result<_, _>>()?,
        None => return Err("block_size: expected a list of sizes".to_owned()),
    };
    Ok(Subclass {
        is_float,
        dtype,
        block,
        codes: needed(codes)?,
        scales: needed(scales)?,
        zeros: tensor(zeros)?,
    })
}

fn size(value: &Value<'_>) -> Result<u64, String> {
    match value {
        Value::Int(n) => u64::try_from(*n).map_err(|_| format!("block_size: found {n}")),
        other => Err(format!("block_size: found {}", other.kind())),
    }
}

/// Returns the name of an object's class without its module; refuses classes outside torchao.
fn class_of<'p>(pickled: &'p Pickled<'_>, value: &Value<'_>) -> Result<&'p str, String> {
    let Value::Object(idx) = value else {
        return Err(format!("expected a tensor, found {}", value.kind()));
    };
    let class = &pickled.heap.objects[*idx].class;
    if !class.starts_with("torchao.") {
        return Err(format!("a tensor of the class {class} cannot be read"));
    }
    Ok(class.rsplit('.').next().unwrap_or(class))
}

fn attribute<'p, 'a>(
    pickled: &'p Pickled<'a>,
    value: &Value<'a>,
    name: &str,
) -> Option<&'p Value<'a>> {
    let Value::Object(idx) = value else {
        return None;
    };
    let state = Value::Dict(pickled.heap.objects[*idx].state);
    pickled.heap.entry(&state, name)
}

fn need<'p, 'a>(
    pickled: &'p Pickled<'a>,
    value: &Value<'a>,
    name: &str,
) -> Result<&'p Value<'a>, String> {
    attribute(pickled, value, name).ok_or_else(|| format!("has no {name}"))
}
