#include "plan/shape.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "plan/config.h"

namespace lowtide::plan {
namespace {

double Billions(const char* config) { return CountParameters(ParseConfig(config, "config.json")).total / 1e9; }
double Millions(const char* config) { return 1000 * Billions(config); }

// Published parameter counts, from configurations with the sizes that the makers give.
TEST(ShapeTest, LlamaFamily) {
  EXPECT_NEAR(Billions(R"({"model_type":"llama","num_hidden_layers":32,"hidden_size":4096,"intermediate_size":14336,
      "num_attention_heads":32,"num_key_value_heads":8,"vocab_size":128256})"), 8.030261, 1e-6);
  EXPECT_NEAR(Billions(R"({"model_type":"llama","num_hidden_layers":32,"hidden_size":4096,"intermediate_size":11008,
      "num_attention_heads":32,"vocab_size":32000})"), 6.738416, 1e-6);
  EXPECT_NEAR(Billions(R"({"model_type":"mistral","num_hidden_layers":32,"hidden_size":4096,"intermediate_size":14336,
      "num_attention_heads":32,"num_key_value_heads":8,"vocab_size":32000})"), 7.241732, 1e-6);
  EXPECT_NEAR(Billions(R"({"model_type":"mixtral","num_hidden_layers":32,"hidden_size":4096,"intermediate_size":14336,
      "num_attention_heads":32,"num_key_value_heads":8,"vocab_size":32000,"num_local_experts":8})"), 46.702793, 1e-6);
  EXPECT_NEAR(Billions(R"({"model_type":"qwen2","num_hidden_layers":28,"hidden_size":3584,"intermediate_size":18944,
      "num_attention_heads":28,"num_key_value_heads":4,"vocab_size":152064})"), 7.615617, 1e-6);
  EXPECT_NEAR(Millions(R"({"model_type":"qwen3","num_hidden_layers":28,"hidden_size":1024,"intermediate_size":3072,"head_dim":128,
      "num_attention_heads":16,"num_key_value_heads":8,"vocab_size":151936,"tie_word_embeddings":true})"), 596.05, 0.01);
  EXPECT_NEAR(Billions(R"({"model_type":"gemma","num_hidden_layers":28,"hidden_size":3072,"intermediate_size":24576,"head_dim":256,
      "num_attention_heads":16,"num_key_value_heads":16,"vocab_size":256000})"), 8.537681, 1e-6);
}

TEST(ShapeTest, GptFamily) {
  EXPECT_NEAR(Millions(R"({"model_type":"gpt2","n_layer":12,"n_embd":768,"n_head":12,"n_positions":1024,"n_inner":null,
      "vocab_size":50257})"), 124.439808, 1e-6);
  EXPECT_NEAR(Millions(R"({"model_type":"opt","num_hidden_layers":12,"hidden_size":768,"ffn_dim":3072,"num_attention_heads":12,
      "max_position_embeddings":2048,"vocab_size":50272,"word_embed_proj_dim":768})"), 125.239296, 1e-6);
  EXPECT_NEAR(Billions(R"({"model_type":"opt","num_hidden_layers":32,"hidden_size":4096,"ffn_dim":16384,"num_attention_heads":32,
      "max_position_embeddings":2048,"vocab_size":50272})"), 6.658474, 1e-6);
  EXPECT_NEAR(Billions(R"({"model_type":"gpt_neox","num_hidden_layers":32,"hidden_size":4096,"intermediate_size":16384,
      "num_attention_heads":32,"vocab_size":50432})"), 6.857302, 1e-6);
  EXPECT_NEAR(Billions(R"({"model_type":"falcon","num_hidden_layers":32,"hidden_size":4544,"num_attention_heads":71,
      "multi_query":true,"parallel_attn":true,"bias":false,"vocab_size":65024})"), 6.921721, 1e-6);
  EXPECT_NEAR(Billions(R"({"model_type":"phi","num_hidden_layers":32,"hidden_size":2560,"intermediate_size":10240,
      "num_attention_heads":32,"vocab_size":51200})"), 2.779684, 1e-6);
  EXPECT_NEAR(Millions(R"({"model_type":"bloom","n_layer":24,"hidden_size":1024,"n_head":16,"vocab_size":250880})"), 559.214592, 1e-5);
}

TEST(ShapeTest, EncodersAndOthers) {
  EXPECT_NEAR(Millions(R"({"model_type":"bert","num_hidden_layers":12,"hidden_size":768,"intermediate_size":3072,"architectures":["BertModel"],
      "num_attention_heads":12,"vocab_size":30522})"), 109.48224, 1e-6);
  EXPECT_NEAR(Millions(R"({"model_type":"vit","num_hidden_layers":12,"hidden_size":768,"intermediate_size":3072,
      "num_attention_heads":12,"image_size":224,"patch_size":16,"num_labels":1000})"), 86.567656, 1e-6);
  EXPECT_NEAR(Millions(R"({"model_type":"t5","num_layers":24,"d_model":1024,"d_ff":16384,"d_kv":128,"num_heads":32,
      "vocab_size":32128})"), 2851.598, 1e-3);
  EXPECT_NEAR(Billions(R"({"model_type":"deepseek_v2","num_hidden_layers":27,"hidden_size":2048,"intermediate_size":10944,
      "moe_intermediate_size":1408,"n_routed_experts":64,"n_shared_experts":2,"num_experts_per_tok":6,"first_k_dense_replace":1,
      "q_lora_rank":null,"kv_lora_rank":512,"qk_nope_head_dim":128,"qk_rope_head_dim":64,"v_head_dim":128,
      "num_attention_heads":16,"num_key_value_heads":16,"vocab_size":102400})"), 15.706484, 1e-6);
}

TEST(ShapeTest, PresetsAreTheirMakersSizes) {
  ASSERT_NE(FindPreset("meta-llama/Llama-3.1-8B"), nullptr);
  EXPECT_NEAR(CountParameters(*FindPreset("Llama-3.1-405B")).total / 1e9, 405.85, 0.01);
  EXPECT_NEAR(CountParameters(*FindPreset("llama3.2-3b")).total / 1e9, 3.2127, 1e-3);
  EXPECT_EQ(FindPreset("no-such-model"), nullptr);
  for (const std::string& name : PresetNames()) CheckShape(*FindPreset(name));
}

TEST(ShapeTest, GuessesComeOutAtTheCount) {
  for (double parameters : {2e4, 1e6, 1.2e8, 1.5e9, 7e9, 7.5e9, 70e9, 405e9, 1e12}) {
    Shape shape = GuessShape(parameters, {});
    EXPECT_NEAR(CountParameters(shape).total, parameters, 1) << parameters;
    shape.exact_parameters = 0;
    if (parameters > 1e8) {
      EXPECT_NEAR(CountParameters(shape).total / parameters, 1, 0.15) << parameters;
    }
    EXPECT_FALSE(shape.assumed.empty());
  }
  EXPECT_THROW(GuessShape(-5, {}), Error);
  EXPECT_THROW(GuessShape(1e300, {}), Error);
}

TEST(ShapeTest, NestedTextConfigIsTheModel) {
  Shape shape = ParseConfig(R"({"model_type":"llava","text_config":{"model_type":"llama","num_hidden_layers":2,"hidden_size":64,
      "num_attention_heads":4,"intermediate_size":128,"vocab_size":100},"vision_config":{"hidden_size":99}})", "c");
  EXPECT_EQ(shape.hidden, 64u);
  EXPECT_FALSE(shape.assumed.empty());
}

}  // namespace
}  // namespace lowtide::plan
