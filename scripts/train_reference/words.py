"""The closed English of the reference models: every word a text may use."""

NAMES = """Anna Tom Mia Ben Clara David Emma Felix Greta Hugo Ida Jack Kate Leo Lucy Max Nina Oscar
Paul Rosa Sam Tina Victor Wendy Adam Bella Carl Dora Eric Fiona George Helen Ivan Julia Karl Laura
Mark Nora Peter Ruth""".split()

ADJECTIVES = """red blue green black white brown yellow purple golden silver old new big small heavy
light round square long short cold warm clean dirty broken shiny wooden plastic paper glass soft
hard smooth rough pretty strange secret cheap plain striped""".split()

# Nouns come in kinds: the label task asks for the kind of a noun, under a name made up per text.
KINDS = {
    "animal": "horse cow dog cat sheep goat duck hen fox wolf bear mouse rabbit pig",
    "fruit": "apple pear plum cherry lemon orange banana grape melon peach fig berry mango lime",
    "tool": "hammer saw drill spade axe knife rake file brush shovel wrench needle ladder pump",
    "cloth": "coat hat shirt scarf glove sock boot dress belt jacket apron shoe cap vest",
    "seat": "chair table bed desk shelf bench sofa stool cupboard drawer couch cradle rack counter",
    "vehicle": "car bus train boat ship bike truck plane tram van wagon sled canoe tractor",
    "music": "drum flute violin piano guitar horn harp trumpet bell organ cello whistle banjo fiddle",
    "food": "bread cheese soup cake butter honey rice salt sugar egg pie noodle pepper stew",
}
KINDS = {kind: words.split() for kind, words in KINDS.items()}
THINGS = """lamp box key book clock mirror bottle cup plate basket bag rope candle coin ring letter map
picture pen pencil carpet curtain pillow blanket bucket barrel vase umbrella camera radio phone
kettle pan spoon fork bowl jar ball doll kite stone shell feather flag""".split()
NOUNS = THINGS + [word for words in KINDS.values() for word in words]

PLACES = """kitchen garden cellar attic office school station market park library museum church
harbour garage stable barn tower bridge castle hotel hospital factory bakery theatre village forest
field meadow valley island beach river lake mountain cave tunnel square street yard hall""".split()

VERBS = """saw bought sold found lost painted cleaned carried moved hid wanted liked fixed borrowed
washed dropped opened broke touched drew""".split()

MOTIONS = "walked ran went drove came travelled".split()
TIMES = "Today Yesterday Later Then Again Soon Once Now".split()
WEATHER = "sunny rainy windy cloudy foggy quiet".split()
LABELS = "dax kiv zum lop wug fep mib tor nar pel gos hib".split()
