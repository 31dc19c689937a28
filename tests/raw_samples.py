"""Small files in the raw formats of the known data sets, with what they hold.

Every sample has rows out of order and, where the format allows, ties; `events` are its (user, item, seconds) in the
order in which they must come out for each user, before any filter but the choice of event types.
"""

from __future__ import annotations

import gzip
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

Event = tuple[str, str, float]


@dataclass(frozen=True)
class Sample:
    """A raw file by the name of its data set; `write` puts it into a folder and returns what --raw is given."""

    name: str
    write: Callable[[Path], Path]
    events: list[Event]
    titles: dict[str, str] = field(default_factory=dict)
    quarantined: int = 0
    removed: dict[str, int] = field(default_factory=dict)
    other_types: int = 0


def text(name: str, content: str, encoding: str = "utf-8") -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        path = folder / name
        data = content.encode(encoding)
        path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
        return path

    return write


def archive(name: str, members: dict[str, bytes]) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        with zipfile.ZipFile(folder / name, "w", zipfile.ZIP_DEFLATED) as out:
            for member, content in members.items():
                out.writestr(member, content)
        return folder / name

    return write


def files(members: dict[str, bytes]) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        for name, content in members.items():
            (folder / name).write_bytes(content)
        return folder

    return write


TAOBAO = Sample(
    "taobao",
    text("user_bought_history.txt", "1915871 8 20150417\n4371603 8 20150418\n1915871 9 20150416\n1915871 3 20150417\n"),
    [("1915871", "9", 1429142400), ("1915871", "8", 1429228800), ("1915871", "3", 1429228800), ("4371603", "8", 1429315200)],
)

_PAGE_VIEWS = """uuid,document_id,timestamp,platform,geo_location,traffic_source
1fd5f051fba643,120,31905835,1,RS,2
8557aa9004be3b,120,32053104,1,VN>44,2
1fd5f051fba643,7,500,2,US>CA>807,1
1fd5f051fba643,120,31905836,1,RS,2
"""
_PAGE_VIEW_EVENTS = [
    ("1fd5f051fba643", "7", 0.5),
    ("1fd5f051fba643", "120", 31905.835),
    ("1fd5f051fba643", "120", 31905.836),
    ("8557aa9004be3b", "120", 32053.104),
]
OUTBRAIN = Sample("outbrain", text("page_views_sample.csv", _PAGE_VIEWS), _PAGE_VIEW_EVENTS)
OUTBRAIN_ZIP = Sample("outbrain", archive("page_views.csv.zip", {"page_views.csv": _PAGE_VIEWS.encode()}), _PAGE_VIEW_EVENTS)

_ML_EVENTS: list[Event] = [("196", "242", 881250949), ("196", "1", 881250950), ("186", "302", 891717742)]
_ML_TITLES = {"1": "Toy Story (1995)", "242": "Kolya (1996)", "302": "Misérables, Les (1995)"}
_U_DATA = b"196\t1\t5\t881250950\n196\t242\t3\t881250949\n186\t302\t3\t891717742\n"
_U_ITEM = "1|Toy Story (1995)|01-Jan-1995||http://x|0\n242|Kolya (1996)|24-Jan-1997||http://x|0\n302|Misérables, Les (1995)|01-Jan-1995||http://x|0\n"
ML_100K = Sample("movielens-100k", archive("ml-100k.zip", {"ml-100k/u.data": _U_DATA, "ml-100k/u.item": _U_ITEM.encode("latin-1")}), _ML_EVENTS, _ML_TITLES)
ML_100K_ATOMIC = Sample(
    "movielens-100k",
    files(
        {
            "ml-100k.inter": b"user_id:token\titem_id:token\trating:float\ttimestamp:float\n" + _U_DATA,
            "ml-100k.item": (
                "item_id:token\tmovie_title:token_seq\trelease_year:token\tclass:token_seq\n"
                "1\tToy Story\t1995\tComedy\n242\tKolya\t1996\tComedy\n302\tMisérables, Les\t1995\tDrama\n"
            ).encode(),
        }
    ),
    _ML_EVENTS,
    _ML_TITLES,
)
ML_1M = Sample(
    "movielens-1m",
    files(
        {
            "ratings.dat": b"1::1193::5::978300760\n1::661::3::978302109\n1::914::3::978300760\n2::1193::4::978298413\n",
            "movies.dat": "661::James and the Giant Peach (1996)::Animation\n914::My Fair Lady (1964)::Musical\n1193::Café au Lait (1993)::Comedy\n".encode(
                "latin-1"
            ),
        }
    ),
    [("1", "1193", 978300760), ("1", "914", 978300760), ("1", "661", 978302109), ("2", "1193", 978298413)],
    {"661": "James and the Giant Peach (1996)", "914": "My Fair Lady (1964)", "1193": "Café au Lait (1993)"},
)
ML_1M_ATOMIC = Sample(  # as in the published package: lines end in CR LF, films are named by their titles
    "movielens-1m",
    files(
        {
            "ml-1m.inter": (
                b"user_id:token\titem_id:token\trating:float\ttimestamp:float\r\n"
                b"1m_1\tJames and the Giant Peach (1996)\t3\t978302109\r\n1m_1\tOne Flew Over the Cuckoo's Nest (1975)\t5\t978300760\r\n"
            ),
            "ml-1m.item": b"item_id:token\tmovie_title:token\trelease_year:float\tgenre:token\r\n"
            b"James and the Giant Peach (1996)\tJames and the Giant Peach\t1996\tMusical\r\n",
        }
    ),
    [("1m_1", "One Flew Over the Cuckoo's Nest (1975)", 978300760), ("1m_1", "James and the Giant Peach (1996)", 978302109)],
    {"James and the Giant Peach (1996)": "James and the Giant Peach (1996)"},
)
ML_LATEST_SMALL = Sample(
    "movielens-latest-small",
    archive(
        "ml-latest-small.zip",
        {
            "ml-latest-small/ratings.csv": b"userId,movieId,rating,timestamp\n1,3,4.0,964981247\n1,1,4.0,964982703\n2,1,3.5,964980000\n1,6,4.0,964981247\n",
            "ml-latest-small/movies.csv": b'movieId,title,genres\n1,Toy Story (1995),Comedy\n3,"American President, The (1995)",Drama\n6,Heat (1995),Crime\n',
        },
    ),
    [("1", "3", 964981247), ("1", "6", 964981247), ("1", "1", 964982703), ("2", "1", 964980000)],
    {"1": "Toy Story (1995)", "3": "American President, The (1995)", "6": "Heat (1995)"},
)

ONLINE_RETAIL = Sample(
    "online-retail",
    text(
        "ecommerce_sales.csv",
        "InvoiceNo,StockCode,Description,Quantity,InvoiceDate,UnitPrice,CustomerID,Country\r\n"
        "536365,85123A,WHITE HANGING HEART ,6,12/1/2010 8:26,2.55,17850,United Kingdom\r\n"
        "536365,71053,LANTERN,6,12/1/2010 8:26,3.39,17850,United Kingdom\r\n"
        "C536379,D,Discount,-1,12/1/2010 9:41,27.5,14527,United Kingdom\r\n"
        "536414,22139,,56,12/1/2010 11:52,0,,United Kingdom\r\n"
        '536415,71053,"LANTERN, 2£",1,12/1/2010 11:53,0,13047,United Kingdom\r\n'
        "536416,71053,SPOILT DATE,1,soon,1.5,13047,United Kingdom\r\n"
        "536417,85123A,CREAM HANGING HEART,1,11/30/2010 10:00,2.55,13047,United Kingdom\r\n"
        "536418,71053\r\n"
        "C536391,22556,PLASTERS,-12,12/1/2010 10:24,1.65,,United Kingdom\r\n",
        "latin-1",
    ),
    [("17850", "85123A", 1291191960), ("17850", "71053", 1291191960), ("13047", "85123A", 1291111200), ("13047", "71053", 1291204380)],
    {"85123A": "WHITE HANGING HEART", "71053": "LANTERN"},
    quarantined=2,
    removed={"no customer": 2, "cancelled invoice": 1},
)

AMAZON = Sample(
    "amazon-video-games",
    text(
        "reviews_Video_Games_5.json.gz",
        '{"reviewerID": "A2HD75EMZR8QLN", "asin": "0700099867", "helpful": [8, 12], '
        '"reviewText": "a \\"good\\" one, {really}\\n", "overall": 1.0, "unixReviewTime": 1341792000}\n'
        '{"reviewerID": "A2HD75EMZR8QLN", "asin": "B00000000X", "overall": 5.0, "unixReviewTime": 1341705600, "reviewTime": "07 8, 2012"}\n'
        '{"asin": "0700099867", "reviewerID": "A3UR8NLLY1ZHCX", "overall": 4.0, "unixReviewTime": 1372550400}\n',
    ),
    [("A2HD75EMZR8QLN", "B00000000X", 1341705600), ("A2HD75EMZR8QLN", "0700099867", 1341792000), ("A3UR8NLLY1ZHCX", "0700099867", 1372550400)],
)

STEAM = Sample(
    "steam",
    text(
        "steam_reviews.json.gz",
        "{u'username': u'Chaos Syren', u'hours': 0.1, u'products': 41, u'product_id': u'725280', "
        "u'page_order': 0, u'date': u'2017-12-17', u'text': u'Don\\'t, \"ever\"', u'early_access': False}\n"
        "{u'username': u'Chaos Syren', u'product_id': u'10', u'date': u'2017-12-16', u'text': u'x'}\n"
        "{u'username': __import__('os').system('true'), u'product_id': u'10', u'date': u'2017-12-16'}\n"
        "{u'username': u'a,\"b\" \\ud83d\\ude00', u'product_id': u'10', u'date': u'2018-01-01'}\n"
        "{u'username': u'cut sho\n",
    ),
    [("Chaos Syren", "10", 1513382400), ("Chaos Syren", "725280", 1513468800), ('a,"b" 😀', "10", 1514764800)],
    quarantined=2,
)

GOWALLA = Sample(
    "gowalla",
    text(
        "loc-gowalla_totalCheckins.txt.gz",
        "0\t2010-10-19T23:55:27Z\t30.2359091167\t-97.7951395833\t22847\n"
        "0\t2010-10-18T22:17:43Z\t30.2691029532\t-97.7493953705\t420315\n"
        "1\t2010-10-17T23:42:03Z\t30.2557309927\t-97.7633857727\t316637\n",
    ),
    [("0", "420315", 1287440263), ("0", "22847", 1287532527), ("1", "316637", 1287358923)],
)

RETAILROCKET = Sample(
    "retailrocket",
    text(
        "events.csv",
        "timestamp,visitorid,event,itemid,transactionid\n1433221332117,257597,view,355908,\n1433224214164,992329,view,248676,\n"
        "1433221332999,257597,addtocart,355908,\n1433221332000,257597,view,15,\n1433222276276,599528,transaction,356475,4000\n",
    ),
    [("257597", "15", 1433221332), ("257597", "355908", 1433221332.117), ("992329", "248676", 1433224214.164)],
    other_types=2,
)

YOOCHOOSE = Sample(
    "yoochoose",
    text(
        "yoochoose-clicks.dat",
        "1,2014-04-07T10:51:09.277Z,214536502,0\n1,2014-04-07T10:54:09.868Z,214536500,0\n2,2014-04-07T13:57:19.373Z,214662742,S\n1,2014-04-07T10:51:09.276Z,214577561,0\n",
    ),
    [("1", "214577561", 1396867869.276), ("1", "214536502", 1396867869.277), ("1", "214536500", 1396868049.868), ("2", "214662742", 1396879039.373)],
)

_VIEWS = """sessionId;userId;itemId;timeframe;eventdate
1;NA;81766;526309;2016-05-09
1;NA;31331;1031018;2016-05-09
1;NA;32118;243569;2016-05-09
1;NA;9654;2000000;2016-05-10
2;7;32627;169;2016-05-20
2;7;1;;2016-05-20
2;7;1;5;soon
2;7
"""
_VIEW_EVENTS = [
    ("1", "32118", 1462752243.569),
    ("1", "81766", 1462752526.309),
    ("1", "31331", 1462753031.018),
    ("1", "9654", 1462840400.0),
    ("2", "32627", 1463702400.169),
]
DIGINETICA = Sample("diginetica", text("train-item-views.csv", _VIEWS), _VIEW_EVENTS, quarantined=3)
DIGINETICA_ZIP = Sample(
    "diginetica", archive("dataset-train-diginetica.zip", {"train-item-views.csv": _VIEWS.encode(), "products.csv": b"x"}), _VIEW_EVENTS, quarantined=3
)

TAOBAO_USERBEHAVIOR = Sample(
    "taobao-userbehavior",
    text(
        "UserBehavior.csv",
        "1,2268318,2520377,pv,1511544070\n1,2333346,2520771,pv,1511561733\n1,2576651,149192,pv,1511544070\n1,2576651,149192,buy,1511544071\n1000,3,5,pv,1511539200\n",
    ),
    [("1", "2268318", 1511544070), ("1", "2576651", 1511544070), ("1", "2333346", 1511561733), ("1000", "3", 1511539200)],
    other_types=1,
)

SAMPLES = {key: value for key, value in list(globals().items()) if isinstance(value, Sample)}
