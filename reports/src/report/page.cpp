// SPDX-License-Identifier: Apache-2.0
#include "core/check.h"
#include "core/sha256.h"
#include "core/strings.h"
#include "src/chart/palette.h"
#include "src/html/assets.h"
#include "src/report/sections.h"

namespace kvgauge::report {
namespace {

// A source expression for a content security policy: only this very text may act.
std::string HashSource(const std::string& text) {
  const std::string hex = Sha256Hex(text);
  std::string bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes.push_back(static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  }
  return StrCat("'sha256-", Base64(bytes), "'");
}

std::string FamilyFilterCss() {
  std::string css;
  for (const FamilyLook& look : Families()) {
    css.append(StrCat(".no-", look.family, " [data-f=", look.family, "]{display:none}"));
  }
  return css.append(".no-variants .variant{display:none}");
}

}  // namespace

Html Folded(const Html& summary, const Html& body, const std::string& family, bool open) {
  KVG_CHECK(body.text().find("</noscript") == std::string::npos, "a folded block in another");
  Html html;
  html.Put(R"(<details class="maps")");
  if (!family.empty()) html.Put(R"( data-f="{}")", {LookOf(family).family});
  return html.Put("{}><summary>{}</summary><noscript>{}</noscript></details>\n",
                  {open ? Markup(" open") : Markup(""), summary, body});
}

Html Figures(const Board& board, const Html& figures) {
  Html html;
  html.Put(R"(<div class="figures">{}</div>)", {figures});
  if (!board.IsLong()) return html.Put("\n");
  return Html().Put(R"(<div class="later"><noscript>{}</noscript></div>)"
                    "\n",
                    {html});
}

std::string WrapPage(const std::string& title, const std::vector<PageLink>& links,
                     const Html& body) {
  const std::string css = StrCat(kReportCss, PaletteCss(), FamilyFilterCss());
  const std::string js(kReportJs);
  Html head;
  head.Put(
      "<!DOCTYPE html>"
      "\n"
      R"(<html lang="en"><head><meta charset="utf-8">)"
      R"(<meta http-equiv="Content-Security-Policy" content="default-src 'none'; script-src {}; )"
      "style-src {}; "
      R"(img-src data:; base-uri 'none'; form-action 'none'">)"
      R"(<meta name="viewport" content="width=device-width, initial-scale=1"><meta )"
      R"(name="referrer" content="no-referrer">)"
      "<title>{}</title><style>",
      {HashSource(js), HashSource(css), title});
  Html middle;
  middle.Put(
      "</style></head><body>"
      "\n"
      R"(<a class="skip" href="#main">To the content</a>{})"
      R"(<nav class="top" aria-label="Sections"><div>)",
      {MarkDefinitions()});
  for (const PageLink& link : links) middle.Put(R"(<a href="#{}">{}</a>)", {link.id, link.title});
  middle.Put(R"(<button type="button" id="theme" class="js">Theme</button></div></nav>)"
             "\n"
             "<main "
             R"(id="main" tabindex="-1">)"
             "\n"
             "{}"
             "<footer>This file holds everything it shows and asks no network for "
             "anything.</footer></main>\n<script>",
             {body});
  return StrCat(head.text(), css, middle.text(), js, "</script></body></html>\n");
}

}  // namespace kvgauge::report
