//! The list of all families.

use super::family::Family;

/// Every family, in the order of its name: one line each.
pub static FAMILIES: &[Family] = &[
    super::albert::FAMILY,
    super::apertus::FAMILY,
    super::arcee::FAMILY,
    super::aria_text::FAMILY,
    super::bamba::FAMILY,
    super::bart::FAMILY,
    super::bert::FAMILY,
    super::bert_generation::FAMILY,
    super::big_bird::FAMILY,
    super::bigbird_pegasus::FAMILY,
    super::biogpt::FAMILY,
    super::blenderbot::FAMILY,
    super::blenderbot_small::FAMILY,
    super::bloom::FAMILY,
    super::clip_text_model::FAMILY,
    super::clip_vision_model::FAMILY,
    super::codegen::FAMILY,
    super::cohere::FAMILY,
    super::cohere2::FAMILY,
    super::ctrl::FAMILY,
    super::cwm::FAMILY,
    super::data2vec_text::FAMILY,
    super::dbrx::FAMILY,
    super::deberta::FAMILY,
    super::deberta_v2::FAMILY,
    super::deepseek_v2::FAMILY,
    super::deepseek_v3::FAMILY,
    super::deit::FAMILY,
    super::described::FAMILY,
    super::diffllama::FAMILY,
    super::dinov2::FAMILY,
    super::dinov2_with_registers::FAMILY,
    super::distilbert::FAMILY,
    super::electra::FAMILY,
    super::encoder_decoder::FAMILY,
    super::ernie::FAMILY,
    super::ernie4_5::FAMILY,
    super::ernie4_5_moe::FAMILY,
    super::esm::FAMILY,
    super::eurobert::FAMILY,
    super::exaone4::FAMILY,
    super::fairseq::FAMILY,
    super::falcon::FAMILY,
    super::falcon_h1::FAMILY,
    super::gemma::FAMILY,
    super::gemma2::FAMILY,
    super::gemma3_text::FAMILY,
    super::gemma3n_text::FAMILY,
    super::gemma4_text::FAMILY,
    super::git::FAMILY,
    super::glm::FAMILY,
    super::glm4::FAMILY,
    super::glm4_moe::FAMILY,
    super::glm4v_text::FAMILY,
    super::glm_ocr_text::FAMILY,
    super::gpt2::FAMILY,
    super::gpt_bigcode::FAMILY,
    super::gpt_neo::FAMILY,
    super::gpt_neox::FAMILY,
    super::gpt_neox_japanese::FAMILY,
    super::gpt_oss::FAMILY,
    super::gptj::FAMILY,
    super::granite::FAMILY,
    super::granitemoe::FAMILY,
    super::granitemoehybrid::FAMILY,
    super::helium::FAMILY,
    super::hunyuan_v1_dense::FAMILY,
    super::hyperclovax::FAMILY,
    super::jais2::FAMILY,
    super::jamba::FAMILY,
    super::led::FAMILY,
    super::lfm2::FAMILY,
    super::llama::FAMILY,
    super::llama4_text::FAMILY,
    super::longformer::FAMILY,
    super::lstm_seq2seq::FAMILY,
    super::m2m_100::FAMILY,
    super::marian::FAMILY,
    super::mbart::FAMILY,
    super::megatron_bert::FAMILY,
    super::minimax::FAMILY,
    super::ministral::FAMILY,
    super::ministral3::FAMILY,
    super::mistral::FAMILY,
    super::mixtral::FAMILY,
    super::mllama_text_model::FAMILY,
    super::modernbert::FAMILY,
    super::modernbert_decoder::FAMILY,
    super::moshi::FAMILY,
    super::mpnet::FAMILY,
    super::mpt::FAMILY,
    super::mt5::FAMILY,
    super::nanochat::FAMILY,
    super::nanogpt::FAMILY,
    super::nemotron::FAMILY,
    super::nemotron_h::FAMILY,
    super::nllb_moe::FAMILY,
    super::nomic_bert::FAMILY,
    super::olmo::FAMILY,
    super::olmo2::FAMILY,
    super::olmo3::FAMILY,
    super::olmoe::FAMILY,
    super::openai_gpt::FAMILY,
    super::opt::FAMILY,
    super::pegasus::FAMILY,
    super::persimmon::FAMILY,
    super::phi::FAMILY,
    super::phi3::FAMILY,
    super::phimoe::FAMILY,
    super::qwen2::FAMILY,
    super::qwen2_moe::FAMILY,
    super::qwen3::FAMILY,
    super::qwen3_moe::FAMILY,
    super::qwen3_next::FAMILY,
    super::recurrent_gemma::FAMILY,
    super::rembert::FAMILY,
    super::roberta::FAMILY,
    super::roformer::FAMILY,
    super::seed_oss::FAMILY,
    super::siglip_text_model::FAMILY,
    super::siglip_vision_model::FAMILY,
    super::smollm3::FAMILY,
    super::stablelm::FAMILY,
    super::starcoder2::FAMILY,
    super::t5::FAMILY,
    super::t5gemma::FAMILY,
    super::torch_encoder::FAMILY,
    super::torch_transformer::FAMILY,
    super::trocr::FAMILY,
    super::umt5::FAMILY,
    super::vaultgemma::FAMILY,
    super::vit::FAMILY,
    super::whisper::FAMILY,
    super::xglm::FAMILY,
    super::xlm::FAMILY,
    super::xlm_roberta::FAMILY,
    super::xlm_roberta_xl::FAMILY,
    super::xlnet::FAMILY,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_family_file_is_registered_and_the_list_is_sorted() {
        let directory = env!("CARGO_MANIFEST_DIR");
        let mut files: Vec<String> = std::fs::read_dir(directory)
            .expect("the source tree")
            .map(|entry| entry.expect("an entry").path())
            .filter(|path| path.is_file() && path.extension().is_some_and(|end| end == "rs"))
            .filter_map(|path| {
                path.file_stem()
                    .map(|stem| stem.to_string_lossy().into_owned())
            })
            .filter(|stem| {
                ![
                    "lib",
                    "relatives",
                    "aliases",
                    "classes",
                    "direction",
                    "family",
                    "find",
                    "generation",
                    "layouts",
                    "list",
                    "mixers",
                    "overrides",
                    "read",
                    "towers",
                    "unread",
                    "versions",
                    "without_attention",
                    "wrapper",
                ]
                .contains(&stem.as_str())
            })
            .collect();
        files.sort();
        let names: Vec<&str> = FAMILIES.iter().map(|family| family.model_type).collect();
        assert!(names.is_sorted());
        // Some names have hyphens, which no file of a module has.
        let mut registered: Vec<String> = names.iter().map(|name| name.replace('-', "_")).collect();
        registered.sort();
        assert_eq!(files, registered);
    }
}
