//! Values that a pickle builds by calls: classes are only named, never run, and storages become references to bytes in the file.

use std::rc::Rc;

use super::globals::{STATE, Scope, size, stand_in_for_call};
use super::pickle::{MOST_CONTAINERS, Machine};
use super::value::{DictKind, Global, Storage, Value, quote};

impl<'a> Machine<'a> {
    pub(super) fn global(&mut self, opcode: &str, module: &str, name: &str) -> Result<(), String> {
        let found = Global::find(module, name, self.scope).map_err(|e| format!("{opcode} {e}"));
        match (found, self.scope) {
            (Ok(found), _) => self.push(Value::Global(found)),
            (Err(refusal), Scope::Modules) => {
                let name = Rc::from(format!("{module}.{name}"));
                self.push(Value::Name(name, Rc::from(refusal)))
            }
            (Err(refusal), _) => Err(refusal),
        }
    }

    pub(super) fn call(&mut self, opcode: &str, arguments: &Value<'a>) -> Result<(), String> {
        let callee = self.pop(opcode)?;
        if !matches!(callee, Value::Global(_) | Value::Name(..)) {
            return Err(format!("{opcode} calls {}", callee.kind()));
        }
        let Value::Tuple(idx) = arguments else {
            let kind = arguments.kind();
            return Err(format!(
                "{opcode} expected a tuple of arguments, found {kind}"
            ));
        };
        self.check_containers()?;
        // The tuple is put back afterwards: it may be in the memo, and the argument of another call.
        let arguments = std::mem::take(&mut self.heap.lists[*idx]);
        let result = match &callee {
            Value::Global(global) => global.call(&arguments, &mut self.heap),
            Value::Name(name, _) if opcode == "NEWOBJ" => Ok(self.heap.add_object(name.clone())),
            Value::Name(name, refusal) => {
                stand_in_for_call(name, refusal, &arguments, &mut self.heap)
            }
            other => Err(format!("calls {}", other.kind())),
        };
        self.heap.lists[*idx] = arguments;
        let result = result.map_err(|e| format!("{opcode}: {e}"))?;
        self.push(result)
    }

    /// Sets the attributes of the value below them on the stack: stored for namespaces and instances, dropped for the others.
    pub(super) fn build(&mut self) -> Result<(), String> {
        let state = self.pop("BUILD")?;
        let idx = match self.top("BUILD")? {
            Value::Dict(idx) => *idx,
            Value::Object(idx) => return self.build_object(*idx, &state),
            Value::Tensor(_) | Value::Name(..) | Value::Set(_) | Value::List(_)
                if self.scope == Scope::Modules =>
            {
                return Ok(());
            }
            other => return Err(format!("BUILD of {} is refused", other.kind())),
        };
        let Value::Dict(state_idx) = state else {
            return Err(format!(
                "BUILD expected a dictionary of attributes, found {}",
                state.kind()
            ));
        };
        match self.heap.dicts[idx].kind {
            DictKind::Plain => Err("BUILD of a dictionary is refused".to_owned()),
            DictKind::Ordered => Ok(()),
            DictKind::Namespace if idx == state_idx => {
                Err("BUILD of a namespace from itself".to_owned())
            }
            DictKind::Namespace => {
                let attributes = std::mem::take(&mut self.heap.dicts[state_idx].entries);
                self.heap.dicts[idx].entries.extend(attributes);
                Ok(())
            }
        }
    }

    /// Sets the attributes of an instance: a dictionary, or a tuple of one and a dictionary of slots.
    fn build_object(&mut self, object_idx: usize, state: &Value<'a>) -> Result<(), String> {
        let dicts: Vec<usize> = match state {
            Value::Dict(idx) => vec![*idx],
            Value::Tuple(idx) => {
                let parts = self.heap.lists[*idx].iter();
                let dict = |part: &Value<'a>| match part {
                    Value::Dict(idx) => Some(*idx),
                    _ => None,
                };
                let dicts: Vec<usize> = parts.filter_map(dict).collect();
                if dicts.is_empty() {
                    let own = self.heap.objects[object_idx].state;
                    let kept = (Value::Text(Rc::from(STATE)), state.clone());
                    self.heap.dicts[own].entries.push(kept);
                }
                dicts
            }
            _ => Vec::new(),
        };
        let own = self.heap.objects[object_idx].state;
        for idx in dicts.into_iter().filter(|idx| *idx != own) {
            // Cloned, because another object may share the dictionary.
            let attributes = self.heap.dicts[idx].entries.clone();
            if self.heap.dicts[own].entries.len() + attributes.len() > MOST_CONTAINERS {
                return Err(format!("more than {MOST_CONTAINERS} attributes"));
            }
            self.heap.dicts[own].entries.extend(attributes);
        }
        Ok(())
    }

    /// `("storage", class, key, device, elements[, part])`, as `torch.save` writes it.
    pub(super) fn storage(&mut self) -> Result<(), String> {
        let id = self.pop("BINPERSID")?;
        if !matches!(self.scope, Scope::Tensors | Scope::Modules) {
            return Err("opcode BINPERSID is refused: expected plain values".to_owned());
        }
        self.check_containers()?;
        if self.scope == Scope::Modules
            && let Some([Value::Text(tag), class, ..]) = self.heap.items(&id)
            && tag.as_ref() == "module"
        {
            let class = class.clone();
            return self.push(class);
        }
        let (class, key, n_elements, part) = match self.heap.items(&id) {
            Some(
                [
                    Value::Text(tag),
                    class,
                    Value::Text(key),
                    _device,
                    n,
                    part @ ..,
                ],
            ) if tag.as_ref() == "storage" && part.len() < 2 => {
                (class, Rc::clone(key), size(n)?, part.first())
            }
            Some([Value::Text(tag), ..]) => {
                return Err(format!(
                    "BINPERSID expected the description of a storage, found {}",
                    quote(tag)
                ));
            }
            _ => return Err("BINPERSID expected the description of a storage".to_owned()),
        };
        let dtype = match class {
            Value::Global(Global::Storage(Some(dtype))) => *dtype,
            Value::Global(other) => {
                return Err(format!(
                    "BINPERSID expected a storage with an element type, found {}",
                    other.name()
                ));
            }
            other => {
                return Err(format!(
                    "BINPERSID expected a class, found {}",
                    other.kind()
                ));
            }
        };
        let part = match part {
            None | Some(Value::None) => None,
            Some(part) => match self.heap.items(part) {
                Some([_key, offset, n]) => Some((size(offset)?, size(n)?)),
                _ => return Err("BINPERSID expected a part of a storage".to_owned()),
            },
        };
        self.heap.storages.push(Storage {
            key,
            dtype,
            n_elements,
            part,
        });
        self.push(Value::Storage(self.heap.storages.len() - 1))
    }
}
