#pragma once

#include <cstdint>

namespace lowtide::snapshot::op {

// clang-format off
// The pickle opcodes (CPython Lib/pickletools.py) that make data.
enum : uint8_t {
  kMark = '(', kStop = '.', kPop = '0', kPopMark = '1', kDup = '2',
  kNone = 'N', kNewTrue = 0x88, kNewFalse = 0x89,
  kBinInt = 'J', kBinInt1 = 'K', kBinInt2 = 'M', kLong1 = 0x8a, kLong4 = 0x8b, kBinFloat = 'G',
  kBinUnicode = 'X', kShortBinUnicode = 0x8c, kBinUnicode8 = 0x8d,
  kBinString = 'T', kShortBinString = 'U', kBinBytes = 'B', kShortBinBytes = 'C', kBinBytes8 = 0x8e,
  kByteArray8 = 0x96,
  kEmptyList = ']', kAppend = 'a', kAppends = 'e', kList = 'l',
  kEmptyTuple = ')', kTuple = 't', kTuple1 = 0x85, kTuple2 = 0x86, kTuple3 = 0x87,
  kEmptyDict = '}', kDict = 'd', kSetItem = 's', kSetItems = 'u',
  kEmptySet = 0x8f, kAddItems = 0x90, kFrozenSet = 0x91,
  kBinPut = 'q', kLongBinPut = 'r', kMemoize = 0x94, kBinGet = 'h', kLongBinGet = 'j',
  kProto = 0x80, kFrame = 0x95,
};
// clang-format on

struct NamedOpcode {
  uint8_t opcode;
  const char* name;
};

// Those that import, call, or fetch what is not in the file. Never executed.
inline constexpr NamedOpcode kRefused[] = {
    {'c', "GLOBAL"},        {0x93, "STACK_GLOBAL"}, {'R', "REDUCE"},       {'b', "BUILD"},
    {'i', "INST"},          {'o', "OBJ"},           {0x81, "NEWOBJ"},      {0x92, "NEWOBJ_EX"},
    {'P', "PERSID"},        {'Q', "BINPERSID"},     {0x82, "EXT1"},        {0x83, "EXT2"},
    {0x84, "EXT4"},         {0x97, "NEXT_BUFFER"},  {0x98, "READONLY_BUFFER"},
};

}  // namespace lowtide::snapshot::op
