//! Readable GGUF architectures: the tensor names of each, and how its converter stored the tensors.

mod architecture;
mod hybrids;
mod list;
mod tables;

pub(super) use self::architecture::{Architecture, Fused, Table};
pub(super) use self::list::ARCHITECTURES;
pub(super) use self::tables::USUAL;
