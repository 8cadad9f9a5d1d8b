#pragma once

#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "heap/paths.h"
#include "python/walk_graph.h"
#include "python/walk_types.h"

namespace lowtide::walk {

// A census holds no references, so that what it saw may be gone once the program went on. This tells which of the nodes on
// some paths are still there, of the same type and held in the same way: only such nodes may be labelled. Objects that the
// collector tracks are looked for among all that it tracks now, others among what a node before them on the path holds now;
// so nothing is read of an address that is not known to be an object. Where a variable or an attribute has been given
// another object of the same type since (`total = total + loss`), the node stands for that one from now on. C++ objects are
// never read for a label.
class Alive {
 public:
  Alive(Census* census, const heap::PathTree& paths) : census_(*census), paths_(paths) {}

  // A path from a root, as heap::PathTo gives it, or a part of one that goes on from a node of another.
  void Want(const std::vector<NodeId>& path);
  void WantType(uint32_t number);
  // A Python object by itself, whatever holds it: There() tells of it.
  void WantObject(NodeId node);
  // Looks for all that is wanted. Once, with the GIL.
  void Look();

  // Whether the object of a node is there, whatever holds it.
  bool There(NodeId node) const { return there_.count(node) > 0; }
  // How many nodes at the beginning of a path that was wanted are still so.
  size_t Prefix(const std::vector<NodeId>& path) const;
  bool Type(uint32_t number) const;

 private:
  // A node's children on the paths, and what it holds now in the slots in which the census saw them.
  struct Holding {
    std::vector<NodeId> children;
    std::unordered_map<uint32_t, PyObject*> now;
  };

  void Seen(PyObject* object);
  void LookAtFrames();
  void LookAtFrame(const LtFrame& frame);
  bool Sibling(NodeId child, PyObject* object) const;
  void Confirm(NodeId node);
  void Follow(NodeId parent);
  void FollowNamespace(NodeId parent, Holding* holding);
  void Held(NodeId parent, Holding* holding, uint32_t slot, PyObject* child);
  void Settle(Holding* holding);
  bool RootHolds(NodeId node) const;
  bool Native(NodeId parent, NodeId child) const;
  uint16_t SlotOf(NodeId child) const { return census_.graph.slot[paths_.edge[child]]; }

  Census& census_;
  const heap::PathTree& paths_;
  TypeTable table_;
  std::vector<NodeId> wanted_;                           // parents before children
  std::unordered_map<NodeId, Holding> holding_;          // by the node before them on the path
  std::unordered_map<uint64_t, NodeId> by_address_;      // of Python objects, as of the census
  std::unordered_set<uint64_t> types_;                   // addresses of types that are wanted
  std::vector<bool> filter_ = std::vector<bool>(1 << 16);  // most objects are not wanted
  std::unordered_set<NodeId> there_;                     // the object exists, of the same type
  std::unordered_set<NodeId> held_;                      // what is before it on the path refers to it
  std::unordered_set<NodeId> confirmed_;                 // both, and so are all before it
  std::unordered_set<uint64_t> types_there_;
  std::unordered_set<uint32_t> frames_;                  // of the census's, those that run now: indices
  std::unordered_set<NodeId> stacked_;                   // on the evaluation stack of one that runs now
};

}  // namespace lowtide::walk
