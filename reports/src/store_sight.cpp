// SPDX-License-Identifier: Apache-2.0
// What samples show: pictures are held once for all samples, and what a prompt shows once for all
// cells that see it alike.
#include "core/json.h"
#include "core/sha256.h"
#include "core/strings.h"
#include "src/store_impl.h"

namespace kvgauge {
namespace {

Result<ShownPicture::Grid> ParseGrid(const Json& json) {
  if (!json.is_array() || json.size() != 2 || !json[0].is_number_unsigned() ||
      !json[1].is_number_unsigned()) {
    return BadInput("a grid is a list of two counts");
  }
  constexpr int64_t kMost = 1 << 20;
  const ShownPicture::Grid grid = {json[0].get<int64_t>(), json[1].get<int64_t>()};
  if (grid.rows > kMost || grid.columns > kMost) return BadInput("a grid is too large");
  return grid;
}

// Without the picture itself, whose key `key` gets.
Result<ShownPicture> ParseShown(const Json& json, std::string& key) {
  const auto is = [&](const char* name, auto test) {
    return json.is_object() && json.contains(name) && test(json.at(name));
  };
  const auto text = [](const Json& value) { return value.is_string(); };
  const auto whole = [](const Json& value) { return value.is_number_integer(); };
  if (!is("picture", text) || !is("name", text) || !is("frame", whole) ||
      !is("answer", [](const Json& value) { return value.is_boolean(); }) ||
      !is("grids", [](const Json& value) { return value.is_array(); })) {
    return BadInput("expected objects with picture, name, frame, answer and grids");
  }
  ShownPicture shown;
  key = json["picture"].get<std::string>();
  shown.name = json["name"].get<std::string>();
  shown.frame = json["frame"].get<int64_t>();
  shown.answer = json["answer"].get<bool>();
  for (const Json& grid : json["grids"]) {
    KVG_ASSIGN(const ShownPicture::Grid parsed, ParseGrid(grid));
    shown.grids.push_back(parsed);
  }
  return shown;
}

}  // namespace

Result<int64_t> ResultStore::Impl::PutSight(const SightRow& sight) {
  const std::string spec = sight.Spec();
  const std::string key = Sha256Hex(spec);
  {
    KVG_ASSIGN(auto known, Cached("SELECT id FROM sight WHERE key = ?"));
    known->Bind(key);
    KVG_ASSIGN(const bool found, known->Step());
    if (found) return known->Int(0);
  }
  for (const ShownPicture& shown : sight.pictures) {
    const PictureRow& picture = *shown.picture;
    KVG_ASSIGN(auto put, Cached("INSERT INTO picture (key, width, height, thumbnail)"
                                " VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING"));
    put->Bind(picture.key, picture.width, picture.height, Blob{picture.thumbnail});
    KVG_TRY(put->Run());
  }
  KVG_ASSIGN(auto put, Cached("INSERT INTO sight (key, spec) VALUES (?, ?)"));
  put->Bind(key, spec);
  KVG_TRY(put->Run());
  return sqlite3_last_insert_rowid(db.get());
}

Result<std::shared_ptr<const SightRow>> ResultStore::Impl::ReadSight(int64_t id) {
  std::string spec;
  {
    KVG_ASSIGN(auto s, Cached("SELECT spec FROM sight WHERE id = ?"));
    s->Bind(id);
    KVG_ASSIGN(const bool found, s->Step());
    if (!found) return BadInput(StrCat(path, ": what sight ", id, " shows is gone"));
    spec = s->Text(0);
  }
  const std::string where = StrCat(path, ": sight ", id);
  KVG_ASSIGN(const Json list, ParseJson(spec, where));
  if (!list.is_array()) return BadInput(StrCat(where, ": is no list"));
  auto sight = std::make_shared<SightRow>();
  for (const Json& entry : list) {
    std::string key;
    Result<ShownPicture> shown = ParseShown(entry, key);
    if (!shown.ok()) return shown.error().Wrap(where);
    KVG_ASSIGN(auto p, Cached("SELECT width, height, thumbnail FROM picture WHERE key = ?"));
    p->Bind(key);
    KVG_ASSIGN(const bool found, p->Step());
    if (!found) return BadInput(StrCat(where, ": picture ", Quoted(key), " is gone"));
    shown->picture =
        std::make_shared<PictureRow>(PictureRow{key, p->Int(0), p->Int(1), p->Text(2)});
    sight->pictures.push_back(*std::move(shown));
  }
  return std::shared_ptr<const SightRow>(std::move(sight));
}

}  // namespace kvgauge
