//! Rearranges the stored tensors of a described model as its spec expects them: heads joined, axes of length one removed.

use attnscope_checkpoint::Tensors;

use super::parts::{HEAD, name_in_layer, name_of_all_heads};
use super::spec::{IDENTITY, flat_name};
use super::{
    ANGLES, Arranged, Described, FIRST_VALUES, MapPart, PATCHES, PLACES, Part, RELATIVE, RESIDUALS,
};

/// Keys of names that stand for vectors, or for a number, of each layer.
const OF_LAYERS: [&str; 5] = [
    FIRST_VALUES,
    "sinks",
    "logit_bias",
    RESIDUALS[0],
    RESIDUALS[1],
];

impl Described {
    /// Adds rearranged tensors that the description needs; if `replaces`, the originals are removed.
    ///
    /// # Errors
    /// When a tensor is missing or cannot be rearranged, with the problem.
    pub fn arrange(&self, tensors: &mut Tensors, replaces: bool) -> Result<(), String> {
        let mut used = Vec::new();
        if let Some(encoder) = &self.encoder {
            encoder.arrange_parts(tensors, &mut used)?;
        }
        self.arrange_parts(tensors, &mut used)?;
        if replaces {
            // A token table may also be the unembedding, with other axes, or the table of the other stack.
            let encoder = self.encoder.as_ref().map(|encoder| &encoder.tokens);
            used.iter()
                .filter(|name| **name != self.tokens && Some(*name) != encoder)
                .for_each(|name| tensors.forget(name));
        }
        Ok(())
    }

    /// Adds the rearranged tensors of this stack, and those that they stand for to `used`.
    fn arrange_parts(&self, tensors: &mut Tensors, used: &mut Vec<String>) -> Result<(), String> {
        self.turn_tables(tensors, used)?;
        self.add_identities(tensors);
        if let Some(bias) = &self.bias {
            bias.arrange(self, tensors, used)?;
        }
        if let Some(relative) = &self.relative {
            let layers = (0..self.n_layers).filter(|idx| self.has(RELATIVE, *idx));
            layers.for_each(|idx| relative.arrange(idx, tensors));
        }
        for (key, part) in self.parts() {
            let mut vectors: Vec<&String> = Vec::new();
            match &part {
                Part::Table(name) if OF_LAYERS.contains(&key) => vectors.push(name),
                Part::Table(name) if PLACES.contains(&key) => (0..self.n_layers)
                    .for_each(|layer_idx| tensors.squeeze(&name_in_layer(name, layer_idx))),
                Part::Table(name) if key == ANGLES => arrange_angles(tensors, name, used)?,
                Part::Table(name) => tensors.squeeze(name),
                Part::Norm(norm) => {
                    vectors.extend(norm.gain.iter().chain(&norm.bias).chain(&norm.alpha));
                }
                // A kernel keeps its axes.
                Part::Map(map) if key == PATCHES => vectors.extend(&map.bias),
                Part::Map(map) => {
                    self.arrange_map(tensors, key, map, used)?;
                    vectors.extend(&map.bias);
                }
                Part::Fused(fused) => {
                    self.arrange_map(tensors, key, &fused.map, used)?;
                    vectors.extend(&fused.map.bias);
                }
            }
            for vector in vectors {
                for layer_idx in (0..self.n_layers).filter(|idx| self.has(key, *idx)) {
                    let name = joined(tensors, &name_in_layer(vector, layer_idx), used);
                    tensors.squeeze(&name);
                    let Some(shape) = tensors.info(&name).map(|info| info.shape.clone()) else {
                        continue;
                    };
                    if shape.len() > 1 {
                        let order: Vec<usize> = (0..shape.len()).collect();
                        if tensors.arrange(
                            &name,
                            &flat_name(&name),
                            &order,
                            &[shape.iter().product()],
                        ) {
                            used.push(name);
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// Adds the turned copies of tables that are stored with one column per id.
    fn turn_tables(&self, tensors: &mut Tensors, used: &mut Vec<String>) -> Result<(), String> {
        let maps = self.parts().into_iter().filter_map(|(_, part)| match part {
            Part::Map(map) => Some(map.weight),
            _ => None,
        });
        let maps: Vec<String> = maps.collect();
        for (stored, turned) in &self.turned {
            tensors.squeeze(stored);
            if tensors.contains(turned) {
                continue;
            }
            let Some(shape) = tensors.info(stored).map(|info| info.shape.clone()) else {
                return Err(format!("no tensor is called {stored}"));
            };
            let [n_columns, n_rows] = shape.as_slice() else {
                return Err(format!("{stored} has shape {shape:?}, expected 2 axes"));
            };
            if !tensors.arrange(stored, turned, &[1, 0], &[*n_rows, *n_columns]) {
                return Err(format!(
                    "the axes of {stored} cannot be exchanged as it is stored"
                ));
            }
            if !maps.contains(stored) {
                used.push(stored.clone());
            }
        }
        Ok(())
    }

    /// Adds the identity that stands for a map which the model does not have.
    fn add_identities(&self, tensors: &mut Tensors) {
        let cross_has_no_o = self.cross.as_ref().is_some_and(|cross| cross.o.is_none());
        if self.o.is_none() || cross_has_no_o || self.mlp.is_some() && self.down.is_none() {
            tensors.add_identity(&self.tokens, IDENTITY);
        }
    }

    fn arrange_map(
        &self,
        tensors: &mut Tensors,
        key: &str,
        map: &MapPart,
        used: &mut Vec<String>,
    ) -> Result<(), String> {
        let arranged = map.arranged(key == "o", key == "unembed");
        for layer_idx in (0..self.n_layers).filter(|idx| self.has(key, *idx)) {
            let name = joined(tensors, &name_in_layer(&map.weight, layer_idx), used);
            let n_axes = tensors.info(&name).map(|info| info.shape.len());
            if n_axes != Some(map.axes.len()) {
                tensors.squeeze(&name);
            }
            let Arranged::RotationOverride {
                order,
                is_input_major,
            } = &arranged
            else {
                continue;
            };
            let new_name = map.arranged_name(&name);
            if tensors.contains(&new_name) {
                continue;
            }
            let Some(info) = tensors.info(&name) else {
                return Err(format!("{key}: no tensor is called {name}"));
            };
            if info.shape.len() != map.axes.len() {
                let (found, expected) = (&info.shape, map.axes.len());
                return Err(format!(
                    "{key}: {name} has shape {found:?}, expected {expected} axes"
                ));
            }
            let n_in = self.n_inputs(map, &info.shape, key == "o");
            let n_out = info.n_elements() / n_in.max(1);
            let shape = if *is_input_major {
                [n_in, n_out]
            } else {
                [n_out, n_in]
            };
            if !tensors.arrange(&name, &new_name, order, &shape) {
                return Err(format!(
                    "{key}: the axes of {name} cannot be exchanged as it is stored"
                ));
            }
            used.push(name);
        }
        Ok(())
    }

    fn n_inputs(&self, map: &MapPart, shape: &[usize], heads_are_inputs: bool) -> usize {
        use super::Axis;
        let is_input = |axis: &Axis| *axis == Axis::In || (*axis == Axis::Head && heads_are_inputs);
        let axes = map.axes.iter().zip(shape);
        axes.filter(|(axis, _)| is_input(axis))
            .map(|(_, n)| n)
            .product()
    }
}

/// The name for a table of angles once it has two axes. It is read when the spec is made, not with the weights.
pub(super) fn angles_name(name: &str) -> String {
    format!("{name} ({ANGLES})")
}

/// Adds a table of angles [position, pair].
fn arrange_angles(tensors: &mut Tensors, name: &str, used: &mut Vec<String>) -> Result<(), String> {
    let new_name = angles_name(name);
    if tensors.contains(&new_name) {
        return Ok(());
    }
    tensors.squeeze(name);
    let Some(shape) = tensors.info(name).map(|info| info.shape.clone()) else {
        return Err(format!("{ANGLES}: no tensor is called {name}"));
    };
    let [n_rows, width] = shape.as_slice() else {
        return Err(format!(
            "{ANGLES}: {name} has shape {shape:?}, expected [position, pair]"
        ));
    };
    if tensors.arrange(name, &new_name, &[0, 1], &[*n_rows, *width]) {
        used.push(name.to_owned());
    }
    Ok(())
}

/// The name of the tensor of all heads, joined from the tensors of single heads if these are separate.
fn joined(tensors: &mut Tensors, name: &str, used: &mut Vec<String>) -> String {
    let whole = name_of_all_heads(name);
    if !name.contains(HEAD) || tensors.contains(&whole) {
        return whole;
    }
    let of_heads = (0..).map(|head_idx: usize| name.replace(HEAD, &head_idx.to_string()));
    let names: Vec<String> = of_heads.take_while(|name| tensors.contains(name)).collect();
    for name in &names {
        tensors.squeeze(name);
    }
    if tensors.join(&names, &whole) {
        used.extend(names);
    }
    whole
}
