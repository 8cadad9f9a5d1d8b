#include "plan/config.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <random>

#include "base/error.h"
#include "plan/plan.h"

namespace lowtide::plan {
namespace {

std::string Complaint(const std::string& text) {
  try {
    ParseConfig(text, "config.json");
  } catch (const Error& error) {
    EXPECT_FALSE(error.remedy().empty()) << text;
    EXPECT_EQ(error.file(), "config.json") << text;
    return error.message();
  }
  return "";
}

TEST(ConfigTest, SaysWhatIsWrong) {
  EXPECT_NE(Complaint("no json"), "");
  EXPECT_NE(Complaint("[1, 2]"), "");
  EXPECT_NE(Complaint("{}").find("num_hidden_layers"), std::string::npos);
  const std::string rest = R"("num_hidden_layers":2,"num_attention_heads":4,"vocab_size":10)";
  EXPECT_NE(Complaint("{\"hidden_size\":-8," + rest + "}").find("hidden_size"), std::string::npos);
  EXPECT_NE(Complaint("{\"hidden_size\":1e300," + rest + "}").find("hidden_size"), std::string::npos);
  EXPECT_NE(Complaint("{\"hidden_size\":\"64\"," + rest + "}").find("hidden_size"), std::string::npos);
  EXPECT_NE(Complaint("{\"hidden_size\":9007199254740991," + rest + "}"), "");
  EXPECT_NE(Complaint(R"({"hidden_size":64,"num_hidden_layers":2,"num_attention_heads":0})"), "");
  EXPECT_NE(Complaint(R"({"hidden_size":64,"num_hidden_layers":2,"num_attention_heads":4,"num_key_value_heads":3})"), "");
  EXPECT_NE(Complaint(std::string(5000, '[')), "");
  EXPECT_NE(Complaint("{\"a\":" + std::string(5000, '[') + std::string(5000, ']') + "}").find("deep"), std::string::npos);
  EXPECT_THROW(ReadConfig("/no/such/config.json"), Error);
}

TEST(ConfigTest, UnknownFamilyIsSaid) {
  Shape shape = ParseConfig(R"({"model_type":"brandnew","hidden_size":64,"num_hidden_layers":2,"num_attention_heads":4})", "c");
  ASSERT_GE(shape.assumed.size(), 2u);
  EXPECT_NE(shape.assumed[0].en.find("brandnew"), std::string::npos);
  EXPECT_NE(shape.assumed[1].en.find("intermediate_size"), std::string::npos);
}

TEST(ConfigTest, ALiveModelIsTakenAtItsWord) {
  Shape shape = ParseConfig(R"({"lowtide_model":{"name":"Net","parameters":1000000,"trainable":1000,"parameter_bytes":2000000,"config":{}}})", "c");
  EXPECT_FALSE(shape.sizes_known);
  EXPECT_NEAR(CountParameters(shape).total, 1e6, 1);
  plan::Setup setup;
  setup.states_only = true;
  setup.weights = Weights::kFp32;
  EXPECT_NEAR(Predict(shape, setup).Peak(), 999000 * 2 + 1000 * 16, 10);
  EXPECT_NE(Complaint(R"({"lowtide_model":{"parameters":10,"trainable":11}})"), "");
  EXPECT_NE(Complaint(R"({"lowtide_model":{"parameters":0}})"), "");
}

// Random values under the keys that matter: a shape that predicts finite figures, or an Error; nothing else.
TEST(ConfigTest, RandomConfigurationsNeverDoHarm) {
  std::mt19937_64 random(7);
  const char* keys[] = {"model_type", "num_hidden_layers", "hidden_size", "num_attention_heads", "num_key_value_heads", "intermediate_size", "vocab_size",
                        "head_dim", "num_local_experts", "num_experts_per_tok", "moe_intermediate_size", "n_shared_experts", "kv_lora_rank", "image_size",
                        "patch_size", "n_positions", "tie_word_embeddings", "text_config", "lowtide_model", "architectures", "expansion_ratio", "qk_rope_head_dim",
                        "relative_attention_num_buckets", "num_decoder_layers", "first_k_dense_replace", "num_labels", "word_embed_proj_dim", "type_vocab_size"};
  const char* values[] = {"\"llama\"", "\"mixtral\"", "\"vit\"", "\"t5\"", "\"deepseek_v3\"", "\"bert\"", "\"falcon\"", "\"gpt2\"", "\"mpt\"", "\"opt\"", "1", "2", "4", "8", "64", "768",
                          "1024", "0", "-1", "1e308", "9007199254740992", "18446744073709551616", "3.5", "null", "true", "[]", "[\"X\"]", "{}", "\"\"", "4294967296", "65536"};
  int good = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string text = "{\"num_hidden_layers\":2,\"hidden_size\":64,\"num_attention_heads\":4";
    for (int k = 0; k < 5; ++k) text += std::string(",\"") + keys[random() % std::size(keys)] + "\":" + values[random() % std::size(values)];
    text += "}";
    try {
      const Shape shape = ParseConfig(text, "c");
      const double peak = Predict(shape, {}).Peak();
      EXPECT_TRUE(std::isfinite(peak) && peak > 0) << text;
      ++good;
    } catch (const Error&) {
    }
  }
  EXPECT_GT(good, 1000);
}

// Cut and damaged text.
TEST(ConfigTest, DamagedTextIsAnError) {
  const std::string whole = R"({"model_type":"llama","num_hidden_layers":2,"hidden_size":64,"num_attention_heads":4,"vocab_size":10,"text_config":{"a":[1,2,{"b":null}]}})";
  for (size_t cut = 0; cut < whole.size(); ++cut) EXPECT_THROW(ParseConfig(whole.substr(0, cut), "c"), Error) << cut;
  std::mt19937_64 random(3);
  for (int i = 0; i < 5000; ++i) {
    std::string text = whole;
    for (int k = 0; k < 3; ++k) text[random() % text.size()] = static_cast<char>(random());
    try {
      ParseConfig(text, "c");
    } catch (const Error&) {
    }
  }
}

}  // namespace
}  // namespace lowtide::plan
