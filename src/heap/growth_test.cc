#include "heap/growth.h"

#include <gtest/gtest.h>

#include "heap/testing_graph_test.h"

namespace lowtide::heap {
namespace {

constexpr uint64_t kModule = 0x1000, kList = 0x2000, kItems = 0x100000;

// A module whose slot 1 is a container with `count` items of 100 bytes that begin at item `from`.
Mark ModuleWithList(World* world, uint64_t from, uint64_t count, Kind kind = Kind::kSequence) {
  std::vector<uint64_t> items;
  for (uint64_t i = from; i < from + count; ++i) items.push_back(kItems + i * 16);
  world->Add(kModule, {0, kList}, Kind::kNamespace);
  world->Add(kList, items, kind);
  for (uint64_t item : items) world->Add(item, {}, Kind::kBytes, 100);
  return world->Finish({kModule});
}

TEST(CompareMarks, AListThatOnlyGrowsIsTheHolder) {
  World a, b;
  const Mark before = ModuleWithList(&a, 0, 10), after = ModuleWithList(&b, 0, 60);
  const auto growth = CompareMarks(before, after, 1);
  ASSERT_EQ(growth.size(), 1u);
  EXPECT_EQ(b.AddressOf(growth[0].holder), kList);
  EXPECT_EQ(growth[0].bytes, 5000);
  EXPECT_EQ(growth[0].members, 50);
  EXPECT_EQ(growth[0].entered.size(), 50u);
}

TEST(CompareMarks, ABoundedBufferWhoseItemsAreReplacedDoesNotGrow) {
  World a, b;
  const Mark before = ModuleWithList(&a, 0, 8), after = ModuleWithList(&b, 40, 8);
  EXPECT_TRUE(CompareMarks(before, after, 1).empty());
}

TEST(CompareMarks, MemoryThatIsUsedAnewForAnotherObjectIsToldApart) {
  // An item of the list stands where a temporary of the module's stood before.
  World a, b;
  a.Add(kModule, {kItems, kList}, Kind::kNamespace);
  a.Add(kItems, {}, Kind::kBytes, 100);
  a.Add(kList, {}, Kind::kSequence);
  const Mark before = a.Finish({kModule});
  b.Add(kModule, {0, kList}, Kind::kNamespace);
  b.Add(kList, {kItems}, Kind::kSequence);
  b.Add(kItems, {}, Kind::kBytes, 100);
  const auto growth = CompareMarks(before, b.Finish({kModule}), 1);
  ASSERT_EQ(growth.size(), 1u);
  EXPECT_EQ(b.AddressOf(growth[0].holder), kList);
  EXPECT_EQ(growth[0].bytes, 100);
}

TEST(CompareMarks, TemporariesThatChangePlacesInMemoryDoNotGrow) {
  // images and labels, two tensors of each step: the second mark finds labels where images stood before.
  const auto world = [](World* w, uint64_t images, uint64_t labels, uint64_t storage) {
    w->Add(kModule, {images, labels}, Kind::kNamespace);
    w->Add(images, {storage}, Kind::kTensor, 10);
    w->Add(labels, {storage + 16}, Kind::kTensor, 10);
    w->Add(storage, {}, Kind::kStorage, 200'000);
    w->Add(storage + 16, {}, Kind::kStorage, 512);
    return w->Finish({kModule});
  };
  World a, b, c;
  const Mark before = world(&a, 0x3000, 0x4000, kItems);
  EXPECT_TRUE(CompareMarks(before, world(&b, 0x4000, 0x3000, kItems + 16), 1).empty());
  EXPECT_TRUE(CompareMarks(before, world(&c, 0x5000, 0x3000, kItems - 16), 1).empty());
}

TEST(CompareMarks, AVariableThatIsReplacedCountsWithTheDifference) {
  // running = running + loss: another object at each mark, holding the chain of all before.
  const auto world = [](World* w, uint64_t head, uint64_t links) {
    w->Add(kModule, {head, 0}, Kind::kNamespace);
    w->Add(head, {kItems}, Kind::kTensor, 10);
    for (uint64_t i = 0; i < links; ++i) {
      w->Add(kItems + 16 * i,
             i + 1 < links ? std::vector<uint64_t>{kItems + 16 * (i + 1)} : std::vector<uint64_t>{},
             Kind::kAutograd, 500);
    }
    return w->Finish({kModule});
  };
  World a, b;
  const Mark before = world(&a, 0x3000, 3), after = world(&b, 0x3010, 13);
  const auto growth = CompareMarks(before, after, 1);
  ASSERT_FALSE(growth.empty());
  EXPECT_EQ(b.AddressOf(growth[0].holder), kModule);
  EXPECT_EQ(b.AddressOf(growth[0].sample), 0x3010u);
  EXPECT_EQ(growth[0].bytes, 5000);
  EXPECT_EQ(growth[0].members, 0);
}

TEST(CompareMarks, SlotsOfAnObjectAreToldApartAndOnesOfAContainerAreNot) {
  const auto world = [](World* w, uint64_t base) {
    w->Add(kModule, {kList}, Kind::kNamespace);
    w->Add(kList, {base, base + 16}, Kind::kObject);
    w->Add(base, {}, Kind::kBytes, base == kItems ? 10 : 1000);
    w->Add(base + 16, {}, Kind::kBytes, base == kItems ? 10 : 400);
    return w->Finish({kModule});
  };
  World a, b;
  const auto growth = CompareMarks(world(&a, kItems), world(&b, kItems + 64), 1);
  ASSERT_EQ(growth.size(), 2u);
  EXPECT_EQ(growth[0].bytes, 990);
  EXPECT_EQ(growth[1].bytes, 390);
}

TEST(CompareMarks, ABufferThatSwellsInPlaceIsItsOwnHolder) {
  World a, b;
  a.Add(kModule, {kItems}, Kind::kNamespace);
  a.Add(kItems, {}, Kind::kBytes, 100);
  b.Add(kModule, {kItems}, Kind::kNamespace);
  b.Add(kItems, {}, Kind::kBytes, 5100);
  const Mark before = a.Finish({kModule}), after = b.Finish({kModule});
  const auto growth = CompareMarks(before, after, 1);
  ASSERT_EQ(growth.size(), 1u);
  EXPECT_EQ(b.AddressOf(growth[0].holder), kItems);
  EXPECT_EQ(growth[0].bytes, 5000);
  EXPECT_EQ(growth[0].sample, kNone);
}

TEST(CompareMarks, WhatIsHeldTwiceIsBookedWhereTheShortestPathEntersIt) {
  // A list and a dict of the same object hold the same new items: neither dominates them.
  World a, b;
  const auto world = [](World* w, std::vector<uint64_t> items) {
    w->Add(kModule, {0x5000}, Kind::kNamespace);
    w->Add(0x5000, {kList, 0x6000}, Kind::kObject);
    w->Add(kList, items, Kind::kSequence);
    w->Add(0x6000, items, Kind::kMapping);
    for (uint64_t item : items) w->Add(item, {}, Kind::kBytes, 100);
    return w->Finish({kModule});
  };
  const auto growth = CompareMarks(world(&a, {}), world(&b, {kItems, kItems + 16}), 1);
  ASSERT_EQ(growth.size(), 1u);
  EXPECT_EQ(b.AddressOf(growth[0].holder), kList);
  EXPECT_EQ(growth[0].bytes, 200);
}

TEST(Amounts, AddUpToWhatIsRetained) {
  World world;
  world.Add(kModule, {kList}, Kind::kNamespace);
  world.Add(kList, {0x7000, 0x7010}, Kind::kSequence, 8);
  world.Add(0x7000, {0x7020}, Kind::kTensor, 200);
  world.Add(0x7010, {}, Kind::kAutograd, 500);
  world.Add(0x7020, {}, Kind::kStorage, 4096);
  const Mark mark = world.Finish({kModule});
  const Amount amount = Amounts(mark, {mark.map->Find(kList)})[0];
  EXPECT_EQ(amount.Bytes(), static_cast<int64_t>(mark.tree->retained[mark.map->Find(kList)]));
  EXPECT_EQ(amount.cpu, 4096);
  EXPECT_EQ(amount.host, 708);
  EXPECT_EQ(amount.tensors, 1);
  EXPECT_EQ(amount.autograd, 1);
}

TEST(ShortestPaths, ALateRootGivesWayToAnEarlierOne) {
  ObjectGraph graph = MakeGraph({{2}, {2}, {}}, {0, 1});
  graph.roots[0].late = 3;
  const PathTree paths = ShortestPaths(graph);
  EXPECT_EQ(PathTo(paths, 2), (std::vector<NodeId>{1, 2}));
  graph.roots[0].late = 0;
  EXPECT_EQ(PathTo(ShortestPaths(graph), 2), (std::vector<NodeId>{0, 2}));
}

TEST(AddressMap, FindsWhatWasPutAlsoAtOddAddresses) {
  AddressMap map;
  EXPECT_EQ(map.Find(0x7f0000001000), kNone);
  EXPECT_EQ(map.Insert(0x7f0000001000, 5), 5u);
  EXPECT_EQ(map.Insert(0x7f0000001000, 6), 5u);
  EXPECT_EQ(map.Insert(0x7f0000001008, 7), 7u);
  EXPECT_EQ(map.Insert(0xffff800000001000, 8), 8u);
  EXPECT_EQ(map.Find(0x7f0000001000), 5u);
  EXPECT_EQ(map.Find(0x7f0000001008), 7u);
  EXPECT_EQ(map.Find(0xffff800000001000), 8u);
}

}  // namespace
}  // namespace lowtide::heap
