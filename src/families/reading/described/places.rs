//! Rows that a described model adds to what queries and keys are made of in every layer, and not to what values are made of.

use attnscope_spec::{AddedPlaces, PlaceRows, TableSource};

use super::PLACES;
use super::parts::name_in_layer;
use super::spec::Reads;

impl Reads<'_> {
    /// The rows of one layer; `None` if the model adds none.
    pub(super) fn places(&self, layer_idx: usize) -> Result<Option<Box<AddedPlaces>>, String> {
        let d_model = self.sizes.d_model;
        let rows = |which: usize| -> Result<Option<PlaceRows>, String> {
            let Some(template) = &self.of.places[which] else {
                return Ok(None);
            };
            let (key, name) = (PLACES[which], name_in_layer(template, layer_idx));
            let shape = self.tensors.info(&name).map(|info| info.shape.clone());
            match shape.as_deref() {
                Some([n_rows, width]) if *width == d_model => {
                    Ok(Some(PlaceRows::Stored(TableSource {
                        tensor: name,
                        n_rows: *n_rows,
                        width: d_model,
                    })))
                }
                None => Err(format!("{key}: no tensor is called {name}")),
                Some(found) => Err(format!(
                    "{key}: {name}: expected a row of {d_model} values for each position, found {found:?}"
                )),
            }
        };
        let [of_queries, of_keys] = [rows(0)?, rows(1)?];
        let has_any = of_queries.is_some() || of_keys.is_some();
        Ok(has_any.then(|| {
            Box::new(AddedPlaces {
                of_queries,
                of_keys,
                reach_values: false,
            })
        }))
    }
}
