//! Architectures of GGUF that can be read: what each calls its tensors, and how its converter stored them.

mod architecture;
mod hybrids;
mod list;
mod tables;

pub(super) use self::architecture::{Architecture, Fused, Table};
pub(super) use self::list::ARCHITECTURES;
pub(super) use self::tables::USUAL;
